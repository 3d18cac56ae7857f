"""Errors as RFC 9457 problem details, or as profefe's clients know them, whoever raised them: the last step
of a request that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from pprof_merge import LimitExceeded, OutputTooLarge, ProfileError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import compile_path

from pgo_collector.engine.outputs import too_large
from pgo_collector.errors import Refusal
from pgo_collector.http.context import context_of
from pgo_collector.http.profefe import ErrorEnvelope, is_profefe
from pgo_collector.store.store import catalog_fails

# nginx's code for a client that went away; nobody receives it, the log line shows it.
CLIENT_CLOSED_REQUEST = 499
_LONGEST_DETAIL = 500
# The limits on a profile that are settings.
_SETTINGS = {
    "compressed_bytes": "PGOF_MAX_COMPRESSED_BYTES",
    "inflated_bytes": "PGOF_MAX_INFLATED_BYTES",
    "name_bytes": "PGOF_MAX_NAME_BYTES",
}


class Problem(JSONResponse):
    """One problem; `about:blank` says that the status is all there is to its type."""

    media_type = "application/problem+json"

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        content = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
        super().__init__(content, status.value, headers)


def install(app: FastAPI) -> None:
    """Every error that leaves a route of `app` becomes a Problem, or below /api/0 an ErrorEnvelope."""
    for kind in (Refusal, SQLAlchemyError, ProfileError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    context_of(request).problem = type(error).__name__
    return error_answer(request, error)


def error_answer(request: Request, error: Exception) -> Response:
    """Return what a client is told of an error, in the form that clients of its path know."""
    status, detail, headers = explained(request, error)
    if is_profefe(request.url.path):
        return ErrorEnvelope(error, status, detail, headers)
    return Problem(status, detail, headers)


def explained(request: Request, error: Exception) -> tuple[HTTPStatus, str, Mapping[str, str] | None]:
    """What is said of an error: its status, a text that isn't long, and headers."""
    status, detail, headers = _explained(request, _refusal_of(error))
    if len(detail) > _LONGEST_DETAIL:
        detail = detail[:_LONGEST_DETAIL] + "…"
    return status, detail, headers


def _refusal_of(error: Exception) -> Exception:
    """Return the refusal that tells a client of an error of a library; any other error as it is."""
    match error:
        case SQLAlchemyError():
            return catalog_fails(error)
        case OutputTooLarge():
            return too_large(error)
    return error


def _explained(request: Request, error: Exception) -> tuple[HTTPStatus, str, Mapping[str, str] | None]:
    match error:
        case Refusal():
            return error.status, str(error), error.headers
        case LimitExceeded():
            setting = _SETTINGS.get(error.limit, "")
            detail = f"too large a profile: {error}" + (f" ({setting})" if setting else "")
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, None
        case ProfileError():
            return HTTPStatus.BAD_REQUEST, f"not a profile: {error}", None
        case HTTPException():  # the router's 404 and 405
            status = HTTPStatus(error.status_code)
            headers = _allowed(request) if status == HTTPStatus.METHOD_NOT_ALLOWED else None
            return status, f"{status.phrase}: {request.method} {request.url.path}", headers
    # The log has the traceback; the client learns nothing of our insides.
    return HTTPStatus.INTERNAL_SERVER_ERROR, "an unexpected error; the server's log has more", None


def _allowed(request: Request) -> Mapping[str, str]:
    """Allow, with the methods of all routes of the path; the router's own names those of the first."""
    methods = {
        method
        for route in iter_route_contexts(request.app.routes)
        if route.path is not None and compile_path(route.path)[0].match(request.url.path)
        for method in route.methods or ()
    }
    return {"Allow": ", ".join(sorted(methods))}
