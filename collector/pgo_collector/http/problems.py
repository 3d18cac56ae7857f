"""Problems: every error becomes problem details (RFC 9457), or what clients of the path's protocol expect.

This is the last step of a request that failed. Each protocol has a `Dialect`; `routes.protocols` lists them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

from pprof_merge import LimitExceeded, OutputTooLarge, ProfileError
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import pgo_collector
from pgo_collector.engine.outputs import too_large
from pgo_collector.errors import (
    CollectorError,
    NoSuchBinary,
    NoSuchRelease,
    NothingSelected,
    PushRefused,
    Refusal,
)
from pgo_collector.http.auth import context_of
from pgo_collector.http.first_answers import Problem
from pgo_collector.model.series import Scope as KeyScope
from pgo_collector.model.services import services_of
from pgo_collector.store.store import catalog_fails

# nginx's code for a client that has gone. No client receives it; it is for the access log.
CLIENT_CLOSED_REQUEST = 499
_LONGEST_DETAIL = 500
_LONGEST_CAUSE = 300
_PACKAGE = Path(pgo_collector.__file__).parent
_RETRY_AFTER = {"Retry-After": "5"}
# What a misspelled service is met with.
_NOT_FOUND = (NothingSelected, NoSuchRelease, NoSuchBinary)
# What curl says of a body unless it is told otherwise.
_FORM = "application/x-www-form-urlencoded"
_OF_CURL = "; if `curl -d` sent it, use `--data-binary`, which leaves the bytes as they are"
# The settings that set limits on a profile.
_SETTINGS = {
    "compressed_bytes": "PGOF_MAX_INFLATED_BYTES or PGOF_MAX_COMPRESSED_BYTES",
    "inflated_bytes": "PGOF_MAX_INFLATED_BYTES",
    "name_bytes": "PGOF_MAX_INFLATED_BYTES or PGOF_MAX_NAME_BYTES",
}


class Failure(NamedTuple):
    """A request that failed, with the status, the detail and the headers of the answer as problem details."""

    request: Request
    error: Exception
    status: HTTPStatus
    detail: str
    headers: Mapping[str, str] | None = None

    @property
    def errors(self) -> Sequence[Exception]:
        """The errors of the profiles in a push, or the one error of any other request."""
        return _errors_of(self.error)

    def has(self, *kinds: type[Exception]) -> bool:
        """Return whether one of the errors is of one of these kinds."""
        return any(isinstance(error, kinds) for error in self.errors)

    def to_retry(self) -> Failure:
        """Return this failure as 503 with Retry-After, for clients that would not send again otherwise."""
        headers = {**_RETRY_AFTER, **(self.headers or {})}
        return self._replace(status=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


class Dialect(NamedTuple):
    """A protocol that clients speak: which paths are its own, and how it answers a failure there.

    Its paths are those that begin with one of the `prefixes`, and `others`. `submits` has the templates of
    its routes that store profiles, whose outcomes are counted.
    """

    prefixes: tuple[str, ...]
    answer: Callable[[Failure], Response]
    submits: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def has_path(self, path: str) -> bool:
        """Return whether a path is the protocol's own."""
        return path.startswith(self.prefixes) or path in self.others


def install_error_handlers(
    app: Starlette, dialects: Sequence[Dialect], nearest_service: Callable[[str, KeyScope], str | None]
) -> None:
    """Answer every error that leaves a route of `app` as `error_answer` does.

    `nearest_service` gets the name of a service and the scope of a key. It returns the stored name that may
    be meant by one that isn't stored.
    """

    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        context = context_of(request)
        context.problem = type(error).__name__
        if isinstance(error, _NOT_FOUND) and context.key is not None and context.service:
            scope = context.key.scope
            for service in services_of(context.service):
                near = await asyncio.to_thread(nearest_service, service, scope)
                if near is not None:
                    error.args = (f"{error}; no service is named {service!r}: did you mean {near!r}?",)
                    break
        return error_answer(request, error, dialects)

    for kind in (
        Refusal,
        PushRefused,
        SQLAlchemyError,
        ProfileError,
        HTTPException,
        ClientDisconnect,
        Exception,
    ):
        app.add_exception_handler(kind, answer)


def error_answer(request: Request, error: Exception, dialects: Sequence[Dialect]) -> Response:
    """Return the answer to an error: that of the dialect whose path it is, else problem details."""
    failure = Failure(request, error, *describe_error(request, error))
    for dialect in dialects:
        if dialect.has_path(request.url.path):
            return dialect.answer(failure)
    return Problem(failure.status, failure.detail, failure.headers)


def describe_error(request: Request, error: Exception) -> tuple[HTTPStatus, str, Mapping[str, str] | None]:
    """Return the status of the answer to an error, a text of at most 501 characters, and headers.

    If the server is at fault, the log line of the request gets the cause.
    """
    status, detail, headers = _describe(request, _refusal_of(error))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        at_fault = max(_errors_of(error), key=lambda each: _describe(request, each)[0])
        context_of(request).cause = _cause_of(at_fault)
    if len(detail) > _LONGEST_DETAIL:
        detail = detail[:_LONGEST_DETAIL] + "…"
    return status, detail, headers


def _errors_of(error: Exception) -> Sequence[Exception]:
    return error.errors if isinstance(error, PushRefused) else [error]


def _cause_of(error: Exception) -> str | None:
    """Return the error of the system or of a library that a refusal stands for, and where it was met.

    For example `OSError: [Errno 28] No space left on device, in blobs/files.py:47`. None if there is none.
    """
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    cause = chain[-1]
    if isinstance(cause, CollectorError):
        return None
    text = str(cause).partition("\n")[0][:_LONGEST_CAUSE]
    places = [
        f", in {Path(frame.f_code.co_filename).relative_to(_PACKAGE)}:{line}"
        for each in chain
        for frame, line in walk_tb(each.__traceback__)
        if frame.f_code.co_filename.startswith(str(_PACKAGE))
    ]
    return f"{type(cause).__name__}: {text}{places[-1] if places else ''}"


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
            changed = _OF_CURL if _FORM in request.headers.get("Content-Type", "") else ""
            return HTTPStatus.BAD_REQUEST, f"not a profile: {error}{changed}", None
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
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(request.url.path)
        for method in route.methods or ()
    }
    return {"Allow": ", ".join(sorted(methods))}
