"""Check what all requests have: the host, the key, the type and size of the body; answer those refused."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
from collections.abc import Collection
from hashlib import sha256
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_LARGEST_BODY = 1 << 16
_BODY_SECONDS = 10.0
_HOST = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")


class RequestRefused(Exception):
    """A request is answered with the HTTP status `status` and the message `reason`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class KnownHosts:
    """Refuse requests to another host than this one (421), whatever their path; pass the others to `app`.

    A web page can point its own name at this machine, and the browser of somebody here then takes the agent
    for the page's server (DNS rebinding). Such a request has the page's name in `Host`. So any IP address is
    let in, and a request without `Host`, which no browser sends; of names, localhost and `names`.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(("localhost", *(_plain(name) for name in names)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").strip()
        answer = self._app
        if host and not self._knows(host):
            answer = JSONResponse(
                f"This agent is not known as {host[:100]!r}. Ask it by its IP address, or start it with "
                "--allow-host and this name.",
                421,
            )
        await answer(scope, receive, send)

    def _knows(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        try:
            if match["v6"] is not None:
                return bool(ipaddress.IPv6Address(match["v6"]))
            name = _plain(match["name"])
            return name in self._names or bool(ipaddress.IPv4Address(name))
        except ValueError:
            return False


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def check_key(request: Request, key: str | None) -> None:
    """Raise RequestRefused (401) unless the request has the key, if there is one."""
    if key is None:
        return
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    # Comparing digests keeps the key's length out of the timing, too.
    same = hmac.compare_digest(sha256(given.strip().encode()).digest(), sha256(key.encode()).digest())
    if scheme.lower() != "bearer" or not same:
        raise RequestRefused(401, "A key is needed: Authorization: Bearer KEY.")


def json_object(body: bytes) -> dict[str, Any]:
    """Return the object in a JSON body. Raises RequestRefused: 400 if it isn't JSON, 422 if not an object."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"The body is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RequestRefused(422, "The body must be an object.")
    return fields


async def refused(_: Request, error: Exception) -> Response:
    """Return an error response, whose body is its message as a JSON string."""
    if isinstance(error, RequestRefused):
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
        return JSONResponse(error.reason, error.status, headers)
    assert isinstance(error, HTTPException)  # noqa: S101 - the only other error handled here
    return JSONResponse(error.detail, error.status_code, error.headers)


async def json_body(request: Request) -> bytes:
    """Return the body of a request that says that it is JSON. Raises RequestRefused: 408, 413, 415."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestRefused(415, "The body must be application/json.")
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _LARGEST_BODY:
                    raise RequestRefused(413, f"The body is larger than {_LARGEST_BODY} bytes.")
    except TimeoutError:
        raise RequestRefused(408, "The body did not come in time.") from None
    return body


async def until_gone(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
