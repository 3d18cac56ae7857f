"""The body of a Push: the message push.v1.PushRequest, as protobuf or JSON, taken apart in a worker."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from pprof_merge import Limits, MalformedProfile, inflate

from pgo_collector.engine.pushes import Unpacked
from pgo_collector.errors import PushInvalid
from pgo_collector.readers.json_text import read_json
from pgo_collector.routes.push.connect import NOT_JSON, most_values
from pgo_collector.routes.push.naming import Sender, Target
from pgo_collector.routes.push.series import (
    NO_SERIES,
    check_count,
    check_label_count,
    check_labels,
    check_series,
    unpack_series,
)
from pgo_collector.routes.pyroscope.push_pb2 import PushRequest, RawProfileSeries

_NAME = "a push.v1.PushRequest"


class PushOptions(NamedTuple):
    """How to read a Push: whether it is JSON, how many profiles it may have, and who sent it."""

    is_json: bool
    most_profiles: int
    sender: Sender


def unpack_push(options: PushOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles of a Push, gzip or not. Raises PushInvalid or ProfileError."""
    message = inflate(content, limits)
    if options.is_json:
        request = _from_json(message, options, most_values(len(content)))
    else:
        request = _from_protobuf(message, options)
    return unpack_series(
        request.series, options.most_profiles, lambda series: _target(series, options.sender)
    )


def _target(series: RawProfileSeries, sender: Sender) -> Target:
    """Return where a series goes. Raises LabelsInvalid."""
    labels = [(label.name, label.value) for label in series.labels]
    check_labels(labels)
    return Target.of(labels, sender)


def _from_protobuf(message: bytes, options: PushOptions) -> PushRequest:
    try:
        check_series(message, 1, options.most_profiles)
        return PushRequest.FromString(message)
    except (DecodeError, MalformedProfile) as error:
        raise PushInvalid(f"the body isn't {_NAME}: {error}") from error


def _from_json(message: bytes, options: PushOptions, most: int) -> PushRequest:
    """Return the request, which has up to `most` values.

    Its lists are counted before they are converted, which takes long.

    protobuf raises SystemError for the name of a field that isn't UTF-8.
    """
    try:
        parsed = read_json(message, most)
        if parsed and "series" not in parsed:
            raise PushInvalid(NO_SERIES)
        every = parsed.get("series") or []
        check_count(len(every), options.most_profiles)
        check_count(sum(len(series.get("samples") or []) for series in every), options.most_profiles)
        for series in every:
            check_label_count(len(series.get("labels") or []))
        return json_format.ParseDict(parsed, PushRequest(), ignore_unknown_fields=True)
    except NOT_JSON as error:
        reason = str(error).encode(errors="backslashreplace").decode()  # it may quote half a surrogate pair
        raise PushInvalid(f"the body isn't {_NAME} as JSON: {reason}") from error
