"""Authentication and authorization: checks of routes, done before any of the body is read, and the context of
a request, which all layers share.

These checks put the key and the service there, the routes the rest; the access log and the metrics read it at
the end.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.types import Scope

from pgo_collector.errors import KeyOutOfScope, KeyRefused
from pgo_collector.http.keys import Key, KeyFile
from pgo_collector.http.routing import Check, check_parameters
from pgo_collector.model.services import joined, services_of
from pgo_collector.traces.spans import span

_NAME = "context"
# The key of requests to routes that need no key. It is for all services.
NO_KEY = Key(b"")


@dataclass(slots=True)
class RequestContext:
    """Facts about a request so far; None where one doesn't apply or isn't known yet.

    `body_bytes` is the size of the body that was read, `profile` the digest or ETag of the profile that was
    stored or sent (the last one of a push), `release` the number of the release, `submits` the outcome of
    each profile that was stored, `problem` the class name of the error, `cause` what the system said if the
    server is at fault, and `status` the answer's, once it has begun: see `layers.AnswerCancelled`. Links
    begin with the `root_path`, which is empty unless a proxy serves this server below a path.
    """

    root_path: str = ""
    key: Key | None = None
    service: str = ""
    body_bytes: int | None = None
    profile: str | None = None
    release: int | None = None
    submits: list[Literal["stored", "duplicate"]] = field(default_factory=list)
    problem: str | None = None
    cause: str | None = None
    status: int | None = None

    @property
    def caller(self) -> Key:
        """Return the key of the caller. Raises KeyRefused if no key was accepted."""
        if self.key is None:
            raise KeyRefused("no key came with the request")
        return self.key


def context_of(request: Request | Scope) -> RequestContext:
    """Return the context of a request; the first call for a request creates it."""
    scope = request.scope if isinstance(request, Request) else request
    state: dict[str, RequestContext] = scope.setdefault("state", {})
    if _NAME not in state:
        state[_NAME] = RequestContext()
    return state[_NAME]


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
            raise KeyRefused(f"{_what_it_is(texts, key_file)}; send one as {how}")
        context_of(request).key = key

    return check


def _what_it_is(texts: Sequence[bytes], key_file: KeyFile) -> str:
    """Return why none of these texts is a key of the file; it may be one of another kind."""
    for other in key_file.others:
        if any(text and other.keys.match(text) is not None for text in texts):
            return f"this is a {other.kind} key, and the route takes {key_file.kind} keys"
    return "the key that was sent is no key that this route takes" if any(texts) else "no key was sent"


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

    The service is the query's `service`, or several as one name, else the only one that the key is for, else
    the default. It raises KeyRefused as `require_key` does, what `check_parameters` raises, and
    KeyOutOfScope if the key isn't for the service.
    """
    check_key = require_key(key_file)

    async def check(request: Request) -> None:
        await check_key(request)
        await check_parameters(request)  # first: a misspelled `service` must not become the default service
        context = context_of(request)
        names = [*filter(None, request.query_params.getlist("service"))]
        names = names or [context.caller.scope.only_service or default_service]
        context.service = names[0] if len(names) == 1 else joined(names)
        check_scope(request, context.service)

    return check


def check_scope(request: Request, service: str) -> None:
    """Raise KeyOutOfScope unless the key of the request is for the service, KeyRefused if there is no key."""
    key = context_of(request).caller
    if not key.scope.includes(service):
        name = next(each for each in services_of(service) if not key.scope.includes(each))
        raise KeyOutOfScope(f"this key, {key.name or key.fingerprint}, isn't for service {name!r}")
