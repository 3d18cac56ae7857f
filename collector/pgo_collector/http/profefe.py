"""What profefe's API answers: an envelope of JSON, for profiles, other things, and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from pgo_collector.errors import BodyTooSlow, NothingSelected, NotStored, QuotaUsedUp
from pgo_collector.http.profile_ids import id_of
from pgo_collector.model.blob_names import BlobName

PREFIX = "/api/0"
FILENAME = "pprof.pb.gz"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RETRY_AFTER = {"Retry-After": "5"}


class Envelope(Response):
    """An answer, of which `body` is the JSON that it is about."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Writes a list member by member: all at once would hold up every other thread."""
        body = f"[{','.join(map(_text, content))}]" if isinstance(content, list) else _text(content)
        return f'{{"code":200,"body":{body}}}\n'.encode()


class ErrorEnvelope(Response):
    """The answer to a request that failed, in one line."""

    media_type = "application/json"

    def __init__(
        self, error: Exception, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None
    ) -> None:
        """Of an error that has the status, detail and headers elsewhere."""
        match error:
            # Its agents give a profile up at any 4xx. WorkerUnavailable is a 503 with such a header anyway.
            case NotStored() | BodyTooSlow() | QuotaUsedUp():
                status, headers = HTTPStatus.SERVICE_UNAVAILABLE, {**_RETRY_AFTER, **(headers or {})}
            case NothingSelected() | HTTPException(status_code=HTTPStatus.NOT_FOUND):
                detail = "nothing found"
        super().__init__(f"{_text({'code': status.value, 'error': detail})}\n", status.value, headers)


def is_profefe(path: str) -> bool:
    """Whether a path is one of this API."""
    return path.startswith(f"{PREFIX}/")


def described(name: BlobName) -> dict[str, Any]:
    """Return a profile as clients see it: without `labels` if it has none, its time in whole seconds."""
    series = name.series
    labels = [{"key": key, "value": value} for key, value in series.labels]
    taken = _EPOCH + timedelta(seconds=name.identity.time_nanos // 10**9)
    return {
        "id": id_of(name),
        "type": series.type,
        "service": series.service,
        **({"labels": labels} if labels else {}),
        "created_at": f"{taken:%Y-%m-%dT%H:%M:%S}Z",
    }


def _text(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
