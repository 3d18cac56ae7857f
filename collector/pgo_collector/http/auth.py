"""Who may call a route, and for which service: FastAPI dependencies, done before any of the body is read."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from pgo_collector.errors import KeyOutOfScope, KeyRefused
from pgo_collector.http.context import NO_KEY, context_of
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.parameters import check_parameters
from pgo_collector.http.selections import first

Dependency = Callable[[Request], Awaitable[None]]


async def anyone(request: Request) -> None:
    """Let a request without a key use a route, for all services. A dependency."""
    context_of(request).key = NO_KEY


def holder_of(key_file: KeyFile) -> Dependency:
    """Return a dependency that puts the key of a request into its context.

    The route then finds which service the request is about, and calls `check_scope`. The dependency raises
    KeyRefused unless the request has one of the file's keys as its bearer token.
    """

    async def check(request: Request) -> None:
        scheme, _, offered = request.headers.get("Authorization", "").partition(" ")
        key = None
        if scheme.lower() == "bearer":
            key = key_file.keys.match(offered.strip().encode("latin-1"))
        if key is None:
            raise KeyRefused("no key that this route takes; send one as Authorization: Bearer KEY")
        context_of(request).key = key

    return check


def bearer_of(key_file: KeyFile, default_service: str) -> Dependency:
    """Return a dependency that puts the key of a request into its context, and the service it is about.

    The service is the query's `service`, else the only one that the key is for, else the default. The
    dependency raises KeyRefused as `holder_of` does, what `check_parameters` raises, and KeyOutOfScope if the
    key isn't for the service.
    """
    hold = holder_of(key_file)

    async def check(request: Request) -> None:
        await hold(request)
        await check_parameters(request)  # a misspelled service is not the default one
        context = context_of(request)
        context.service = first(request, "service") or context.caller.scope.only or default_service
        check_scope(request, context.service)

    return check


def check_scope(request: Request, service: str) -> None:
    """Raise KeyOutOfScope unless the key of the request is for the service, KeyRefused if there is no key."""
    key = context_of(request).caller
    if not key.scope.includes(service):
        raise KeyOutOfScope(f"this key, {key.name or key.fingerprint}, isn't for service {service!r}")
