"""The intake of Datadog's agent at the edge: its paths, the header of keys, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from pgo_collector.errors import BodyTooSlow, NotStored, PushRefused

UPLOAD = "/profiling/v1/input"
INFO = "/info"
KEY_HEADER = "DD-API-KEY"
_RETRY_AFTER = {"Retry-After": "5"}


class DatadogError(JSONResponse):
    """An error as Datadog's intake answers it: JSON with a list of `errors`."""

    def __init__(
        self, error: Exception, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None
    ) -> None:
        """Make the answer to an error with the status, detail and headers that it has on other paths.

        Tracers that send a profile again do so after a 5xx or 429, and never after another 4xx.
        """
        errors = error.errors if isinstance(error, PushRefused) else [error]
        if any(isinstance(each, NotStored | BodyTooSlow) for each in errors):
            status, headers = HTTPStatus.SERVICE_UNAVAILABLE, {**_RETRY_AFTER, **(headers or {})}
        super().__init__({"errors": [detail]}, status.value, headers)


def is_datadog(path: str) -> bool:
    """Return whether a path is one that Datadog's tracers upload profiles to."""
    return path == UPLOAD
