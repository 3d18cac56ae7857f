"""autopgo's API at the edge: its paths, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

PROFILES = "/api/profile"
HEALTH = ("/api/health", "/api/ready")
FILENAME = "default.pgo"


class AutopgoError(JSONResponse):
    """An error of autopgo: JSON with a `message` and the status as `code`."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None) -> None:
        super().__init__({"message": detail, "code": status.value}, status.value, headers)


def is_autopgo(path: str) -> bool:
    """Return whether a path belongs to autopgo's API."""
    return path == PROFILES or path.startswith(f"{PROFILES}/") or path in HEALTH
