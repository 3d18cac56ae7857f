"""Problems: every error becomes problem details (RFC 9457), or what clients of the path's protocol expect.
This is the last step of a request that failed.
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
from pgo_collector.errors import PushRefused, Refusal
from pgo_collector.http.autopgo import AutopgoError, is_autopgo
from pgo_collector.http.context import context_of
from pgo_collector.http.datadog import DatadogError, is_datadog
from pgo_collector.http.otlp import ExportError, is_otlp
from pgo_collector.http.profefe import ErrorEnvelope, is_profefe
from pgo_collector.http.pyroscope import ConnectError, IngestError, is_connect, is_ingest
from pgo_collector.store.store import catalog_fails

# nginx's code for a client that has gone. No client receives it; it is for the access log.
CLIENT_CLOSED_REQUEST = 499
_LONGEST_DETAIL = 500
# The settings that set limits on a profile.
_SETTINGS = {
    "compressed_bytes": "PGOF_MAX_COMPRESSED_BYTES",
    "inflated_bytes": "PGOF_MAX_INFLATED_BYTES",
    "name_bytes": "PGOF_MAX_NAME_BYTES",
}


class Problem(JSONResponse):
    """An answer with problem details. The type `about:blank` says that the status is the type."""

    media_type = "application/problem+json"

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        content = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
        super().__init__(content, status.value, headers)


def install_error_handlers(app: FastAPI) -> None:
    """Answer every error that leaves a route of `app` as `error_answer` does."""
    for kind in (
        Refusal,
        PushRefused,
        SQLAlchemyError,
        ProfileError,
        HTTPException,
        ClientDisconnect,
        Exception,
    ):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    context_of(request).problem = type(error).__name__
    return error_answer(request, error)


def error_answer(request: Request, error: Exception) -> Response:
    """Return the answer to an error, in the form that clients of the path expect."""
    status, detail, headers = describe_error(request, error)
    path = request.url.path
    answer: Response
    if is_profefe(path):
        answer = ErrorEnvelope(error, status, detail, headers)
    elif is_connect(path):
        answer = ConnectError(error, status, detail, headers)
    elif is_ingest(path):
        answer = IngestError(error, status, detail, headers)
    elif is_otlp(path):
        answer = ExportError(request, error, status, detail, headers)
    elif is_datadog(path):
        answer = DatadogError(error, status, detail, headers)
    elif is_autopgo(path):
        answer = AutopgoError(status, detail, headers)
    else:
        answer = Problem(status, detail, headers)
    return answer


def describe_error(request: Request, error: Exception) -> tuple[HTTPStatus, str, Mapping[str, str] | None]:
    """Return the status of the answer to an error, a text of at most 501 characters, and headers."""
    status, detail, headers = _describe(request, _refusal_of(error))
    if len(detail) > _LONGEST_DETAIL:
        detail = detail[:_LONGEST_DETAIL] + "…"
    return status, detail, headers


def _refusal_of(error: Exception) -> Exception:
    """Return the refusal that stands for an error of a library, or any other error as it is."""
    match error:
        case SQLAlchemyError():
            return catalog_fails(error)
        case OutputTooLarge():
            return too_large(error)
    return error


def _describe(request: Request, error: Exception) -> tuple[HTTPStatus, str, Mapping[str, str] | None]:
    match error:
        case Refusal():
            return error.status, str(error), error.headers
        case LimitExceeded():
            setting = _SETTINGS.get(error.limit, "")
            detail = f"the profile is too large: {error}" + (f" ({setting})" if setting else "")
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, None
        case ProfileError():
            return HTTPStatus.BAD_REQUEST, f"not a profile: {error}", None
        case PushRefused():
            described = [_describe(request, each) for each in error.errors]
            # What a client should send again has the highest status; what was stored isn't stored twice then.
            status, _, headers = max(described, key=lambda each: each[0])
            return status, "; ".join(dict.fromkeys(detail for _, detail, _ in described)), headers
        case HTTPException():  # the router's 404 and 405
            status = HTTPStatus(error.status_code)
            headers = _allowed(request) if status == HTTPStatus.METHOD_NOT_ALLOWED else None
            return status, f"{status.phrase}: {request.method} {request.url.path}", headers
    # The log has the traceback; the client isn't told about the server's internals.
    return HTTPStatus.INTERNAL_SERVER_ERROR, "an unexpected error; see the server's log", None


def _allowed(request: Request) -> Mapping[str, str]:
    """Return the header Allow for all routes of the path; the router names only the first route's methods."""
    methods = {
        method
        for route in iter_route_contexts(request.app.routes)
        if route.path is not None and compile_path(route.path)[0].match(request.url.path)
        for method in route.methods or ()
    }
    return {"Allow": ", ".join(sorted(methods))}
