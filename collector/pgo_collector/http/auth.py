"""Authentication and authorization: checks of routes, done before any of the body is read."""

import base64
import binascii
from contextlib import suppress

from starlette.requests import Request

from pgo_collector.errors import KeyOutOfScope, KeyRefused
from pgo_collector.http.context import NO_KEY, context_of
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.parameters import check_parameters
from pgo_collector.http.routing import Check
from pgo_collector.http.selections import first_values
from pgo_collector.traces.spans import span


async def allow_anyone(request: Request) -> None:
    """Let a request use a route without a key, for all services. A check."""
    context_of(request).key = NO_KEY


def require_key(key_file: KeyFile, header: str = "") -> Check:
    """Return a check that puts the key of a request into its context.

    The route then finds which service the request is about, and calls `check_scope`. It raises
    KeyRefused unless the request's bearer token, or its password (Basic), is one of the file's keys. Where
    clients can send a key in a `header` of their own, that counts, too.
    """
    how = f"{header}: KEY, or as Authorization: Bearer KEY" if header else "Authorization: Bearer KEY"

    async def check(request: Request) -> None:
        with span("http", "key check"):
            texts = [_text_of_key(request.headers.get("Authorization", ""))]
            if header:
                texts.append(request.headers.get(header, "").strip().encode("latin-1"))
            matches = (key_file.keys.match(text) for text in texts if text)
            key = next((match for match in matches if match is not None), None)
        if key is None:
            raise KeyRefused(f"no key that this route takes; send one as {how}")
        context_of(request).key = key

    return check


def _text_of_key(authorization: str) -> bytes:
    """Return the key in a header: the token (Bearer) or the password after any user name (Basic)."""
    scheme, _, credentials = authorization.partition(" ")
    content = credentials.strip().encode("latin-1")
    match scheme.lower():
        case "bearer":
            return content
        case "basic":
            with suppress(binascii.Error):
                return base64.b64decode(content, validate=True).partition(b":")[2]
    return b""


def require_service_key(key_file: KeyFile, default_service: str) -> Check:
    """Return a check that puts the key of a request into its context, and the service it is about.

    The service is the query's `service`, else the only one that the key is for, else the default. It
    raises KeyRefused as `require_key` does, what `check_parameters` raises, and KeyOutOfScope if
    the key isn't for the service.
    """
    check_key = require_key(key_file)

    async def check(request: Request) -> None:
        await check_key(request)
        await check_parameters(request)  # first: a misspelled `service` must not become the default service
        context = context_of(request)
        context.service = (
            first_values(request).get("service") or context.caller.scope.only_service or default_service
        )
        check_scope(request, context.service)

    return check


def check_scope(request: Request, service: str) -> None:
    """Raise KeyOutOfScope unless the key of the request is for the service, KeyRefused if there is no key."""
    key = context_of(request).caller
    if not key.scope.includes(service):
        raise KeyOutOfScope(f"this key, {key.name or key.fingerprint}, isn't for service {service!r}")
