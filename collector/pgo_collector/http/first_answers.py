"""Answers that a server may give while it starts: those of `/readyz`, and problem details of connections.

So this imports little of the collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from pprof_merge import ENGINE
from starlette.responses import JSONResponse, Response


def ready_answer(faults: Mapping[str, str], **details: object) -> Response:
    """Return 200 with the details, or 503 with the faults too if there are any."""
    return JSONResponse(
        {"ready": not faults, "fails": faults, "engine": ENGINE, **details},
        HTTPStatus.SERVICE_UNAVAILABLE if faults else HTTPStatus.OK,
        headers={"Cache-Control": "no-store"},
    )


class Problem(JSONResponse):
    """An answer with problem details. The type `about:blank` says that the status is the type."""

    media_type = "application/problem+json"

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        content = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
        super().__init__(content, status.value, headers)
