"""The body of a WriteRaw: the message WriteRawRequest, taken apart in a worker, and the series it names."""

from __future__ import annotations

import re
from typing import NamedTuple

from google.protobuf.message import DecodeError
from pprof_merge import Limits, MalformedProfile, inflate

from pgo_collector.engine.pushes import Unpacked
from pgo_collector.errors import LabelsInvalid, PushInvalid
from pgo_collector.readers.compression import unframed
from pgo_collector.routes.parca.parca_pb2 import RawProfileSeries, WriteRawRequest
from pgo_collector.routes.push.naming import UNKNOWN_SERVICE, Sender, Target
from pgo_collector.routes.push.series import check_labels, check_series, unpack_series

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SERVICE = "service_name"
# Parca has no label for the service. The first of these stands for it: what Kubernetes, a container and the
# kernel call a program, and the job of a scrape.
_SERVICE_LABELS = ("app_kubernetes_io_name", "container", "comm", "job")
# Labels that would make hundreds of series of one program.
_LEFT_OUT = frozenset({"cpu", "thread_id"})


class WriteOptions(NamedTuple):
    """How to read a WriteRaw: how many profiles it may have, and who sent it."""

    most_profiles: int
    sender: Sender


def unpack_write_raw(options: WriteOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles of a WriteRaw. It is gzip, zstd, LZ4 or neither; the magic bytes tell.

    Raises PushInvalid or ProfileError.
    """
    message = inflate(unframed(content, limits), limits)
    try:
        check_series(message, 2, options.most_profiles, in_set=True)
        request = WriteRawRequest.FromString(message)
    except (DecodeError, MalformedProfile) as error:
        raise PushInvalid(f"the body isn't a WriteRawRequest: {error}") from error
    return unpack_series(
        request.series, options.most_profiles, lambda series: _target(series, options.sender)
    )


def _target(series: RawProfileSeries, sender: Sender) -> Target:
    """Return where a series goes. Raises LabelsInvalid."""
    labels = [(label.name, label.value) for label in series.labels.labels]
    check_labels(labels)
    for name, _ in labels:
        if not _LABEL_NAME.fullmatch(name):
            raise LabelsInvalid(
                f"the label {name[:50]!r}: a name has letters, digits and _, and no digit first"
            )
    kept = {name: value for name, value in labels if name not in _LEFT_OUT}
    if not kept.get(_SERVICE) and sender.service == UNKNOWN_SERVICE:
        kept[_SERVICE] = next(filter(None, map(kept.get, _SERVICE_LABELS)), "")
    return Target.of(kept.items(), sender)
