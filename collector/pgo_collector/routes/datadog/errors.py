"""The paths of Datadog's intake, its header for keys, and its errors."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from pgo_collector.errors import BodyTooSlow, NotStored
from pgo_collector.http.problems import Dialect, Failure

UPLOAD = "/profiling/v1/input"
INFO = "/info"
KEY_HEADER = "DD-API-KEY"


def _error(failure: Failure) -> Response:
    """Return an error as Datadog's intake answers it: JSON with a list of `errors`.

    Tracers that send a profile again do so after a 5xx or 429, and never after another 4xx.
    """
    if failure.has(NotStored, BodyTooSlow):
        failure = failure.to_retry()
    return JSONResponse({"errors": [failure.detail]}, failure.status.value, failure.headers)


DATADOG = Dialect(lambda path: path == UPLOAD, _error, submits=(UPLOAD,))
