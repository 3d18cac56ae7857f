"""Who may call a route, and for which service: FastAPI dependencies, done before any of the body is read."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from pgo_collector.errors import KeyOutOfScope, KeyRefused
from pgo_collector.http.keys import Key, KeyFile
from pgo_collector.http.parameters import check_parameters
from pgo_collector.http.selections import first

Dependency = Callable[[Request], Awaitable[None]]

_NO_KEY = Key(b"")


async def anyone(request: Request) -> None:
    """The dependency of routes that ask for no key: whoever calls may do so for all services."""
    request.state.bearer = _NO_KEY


def holder_of(key_file: KeyFile) -> Dependency:
    """A dependency that leaves the key in the request's state: `bearer`.

    Which service the request is about is for the route to find, and to check with `check_scope`. Raises
    KeyRefused unless the request bears one of the file's keys.
    """

    async def check(request: Request) -> None:
        scheme, _, offered = request.headers.get("Authorization", "").partition(" ")
        key = None
        if scheme.lower() == "bearer":
            key = key_file.keys.match(offered.strip().encode("latin-1"))
        if key is None:
            raise KeyRefused("no key that this route takes; send one as Authorization: Bearer KEY")
        note_key(request, key)

    return check


def note_key(request: Request, key: Key) -> None:
    """Leaves the key in the request's state, and for the log what it is called there."""
    request.state.key = key.fingerprint
    if key.name is not None:
        request.state.key_name = key.name
    request.state.bearer = key


def bearer_of(key_file: KeyFile, default_service: str) -> Dependency:
    """A dependency that leaves in the request's state also which service it is about: `service`.

    That is the `service` of the query, as it is there; or the one that the key is for, if it is for
    just one; or the default. Raises KeyRefused unless the request bears one of the file's keys, as
    `check_parameters` does, and KeyOutOfScope if the key isn't for the service.
    """
    hold = holder_of(key_file)

    async def check(request: Request) -> None:
        await hold(request)
        await check_parameters(request)  # a misspelled service is not the default one
        request.state.service = (
            first(request, "service") or request.state.bearer.scope.only or default_service
        )
        check_scope(request, request.state.service)

    return check


def check_scope(request: Request, service: str) -> None:
    """Raises KeyOutOfScope unless the key of the request is for the service."""
    key = request.state.bearer
    if not key.scope.includes(service):
        raise KeyOutOfScope(f"this key, {key.name or key.fingerprint}, isn't for service {service!r}")
