"""profefe's JSON: its answers and errors, and the ids of profiles in its URLs."""

from __future__ import annotations

import json
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from pgo_collector.errors import (
    BodyTooSlow,
    LabelsInvalid,
    NoSuchProfile,
    NothingSelected,
    NotStored,
    QuotaUsedUp,
)
from pgo_collector.http.problems import Dialect, Failure
from pgo_collector.model.series import BlobName, Identity, Series

PREFIX = "/api/0"
FILENAME = "pprof.pb.gz"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The time in ns and the digest of a blob; in an id, the folders of its series follow.
_IDENTITY = struct.Struct(">q32s")


class Envelope(Response):
    """A successful answer: JSON with a `code` and the content as `body`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes. A list is written member by member: all at once would hold up other threads."""
        body = f"[{','.join(map(_json, content))}]" if isinstance(content, list) else _json(content)
        return f'{{"code":200,"body":{body}}}\n'.encode()


def _error(failure: Failure) -> Response:
    """Return the answer to a request that failed: JSON with a `code` and an `error`, in one line."""
    detail = failure.detail
    match failure.error:
        # profefe's agents drop a profile at any 4xx. WorkerUnavailable is a 503 with Retry-After anyway.
        case NotStored() | BodyTooSlow() | QuotaUsedUp():
            failure = failure.to_retry()
        case NothingSelected() | HTTPException(status_code=HTTPStatus.NOT_FOUND):
            detail = "nothing found"
    content = f"{_json({'code': failure.status.value, 'error': detail})}\n"
    return Response(content, failure.status.value, failure.headers, "application/json")


PROFEFE = Dialect((f"{PREFIX}/",), _error, submits=(f"{PREFIX}/profiles",))


def profile_entry(name: BlobName) -> dict[str, Any]:
    """Return a profile as clients see it: without `labels` if it has none, its time in whole seconds."""
    series = name.series
    labels = [{"key": key, "value": value} for key, value in series.labels]
    taken = _EPOCH + timedelta(seconds=name.identity.time_nanos // 10**9)
    return {
        "id": profile_id(name),
        "type": series.type,
        "service": series.service,
        **({"labels": labels} if labels else {}),
        "created_at": f"{taken:%Y-%m-%dT%H:%M:%S}Z",
    }


def profile_id(name: BlobName) -> str:
    """Return the id of a blob: its time, digest and series, in letters, digits, `-` and `_` (base64url).

    The id depends on nothing else, so it survives restarts and a new catalog.
    """
    identity = _IDENTITY.pack(name.identity.time_nanos, bytes.fromhex(name.identity.digest))
    return urlsafe_b64encode(identity + name.series.folders.encode()).decode().rstrip("=")


def parse_profile_id(id_: str) -> BlobName:
    """Return the blob name in an id; no such blob needs to exist. Raises NoSuchProfile for a malformed id."""
    try:
        content = urlsafe_b64decode(id_ + "=" * (-len(id_) % 4))
        time_nanos, digest = _IDENTITY.unpack_from(content)
        service, type_, *labels = content[_IDENTITY.size :].decode().split("/")
        series = Series.parse(service, type_, ",".join(labels))
    except (ValueError, struct.error, LabelsInvalid):
        raise NoSuchProfile("nothing found") from None
    name = BlobName(series, Identity(time_nanos, digest.hex()))
    if profile_id(name) != id_:
        raise NoSuchProfile("nothing found")
    return name


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
