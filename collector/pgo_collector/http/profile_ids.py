"""Ids of profiles, for URLs: time, digest and series in base64url, and so the same whatever restarts."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode

from pgo_collector.errors import LabelsInvalid, NoSuchProfile
from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.series import Series

_IDENTITY = struct.Struct(">q32s")  # the folders of the series come after it


def id_of(name: BlobName) -> str:
    """The id of a blob: letters, digits, `-` and `_`."""
    identity = _IDENTITY.pack(name.identity.time_nanos, bytes.fromhex(name.identity.digest))
    return urlsafe_b64encode(identity + name.series.folders.encode()).decode().rstrip("=")


def name_of(id_: str) -> BlobName:
    """The blob that has such an id, if there is one. Raises NoSuchProfile for what is never an id."""
    try:
        content = urlsafe_b64decode(id_ + "=" * (-len(id_) % 4))
        time_nanos, digest = _IDENTITY.unpack_from(content)
        service, type_, *labels = content[_IDENTITY.size :].decode().split("/")
        series = Series.parse(service, type_, ",".join(labels))
    except (ValueError, struct.error, LabelsInvalid):
        raise NoSuchProfile("nothing found") from None
    name = BlobName(series, Identity(time_nanos, digest.hex()))
    if id_of(name) != id_:
        raise NoSuchProfile("nothing found")
    return name
