"""Who may call a route: a FastAPI dependency, done before any of the body is read."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from pgo_collector.errors import KeyRefused
from pgo_collector.http.keys import KeyFile


def bearer_of(key_file: KeyFile) -> Callable[[Request], Awaitable[None]]:
    """A dependency that raises KeyRefused unless the request bears one of the file's keys."""

    async def check(request: Request) -> None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        fingerprint = None
        if scheme.lower() == "bearer":
            fingerprint = key_file.keys.match(key.strip().encode("latin-1"))
        if fingerprint is None:
            raise KeyRefused("no key that this route takes; send one as Authorization: Bearer KEY")
        request.state.key = fingerprint

    return check
