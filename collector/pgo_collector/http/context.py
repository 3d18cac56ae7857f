"""The context of a request: its key, its service and its outcome, in one object for all layers.

Authentication sets the key and the service, the routes set the rest, and the access log and the metrics read
it at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.types import Scope

from pgo_collector.errors import KeyRefused
from pgo_collector.http.keys import Key

_NAME = "context"
# The key of requests to routes that need no key. It is for all services.
NO_KEY = Key(b"")


@dataclass(slots=True)
class RequestContext:
    """Facts about a request so far; None where one doesn't apply or isn't known yet.

    `body_bytes` is the size of the body that was read, `profile` the digest or ETag of the profile that was
    stored or sent (the last one of a push), `release` the number of the release, `submits` the outcome of
    each profile that was stored, `problem` the class name of the error, and `cause` what the system said if
    the server is at fault.
    """

    key: Key | None = None
    service: str = ""
    body_bytes: int | None = None
    profile: str | None = None
    release: int | None = None
    submits: list[Literal["stored", "duplicate"]] = field(default_factory=list)
    problem: str | None = None
    cause: str | None = None

    @property
    def caller(self) -> Key:
        """Return the key of the caller. Raises KeyRefused if no key was accepted."""
        if self.key is None:
            raise KeyRefused("no key came with the request")
        return self.key

    @property
    def log_fields(self) -> dict[str, object]:
        """Return the fields of the request's log line, without those that are None."""
        key = None if self.key is NO_KEY else self.key
        fields: dict[str, object] = {
            "key": key and key.fingerprint,
            "key_name": key and key.name,
            "bytes": self.body_bytes,
            "profile": self.profile,
            "release": self.release,
            "cause": self.cause,
        }
        return {name: value for name, value in fields.items() if value is not None}


def context_of(request: Request | Scope) -> RequestContext:
    """Return the context of a request; the first call for a request creates it."""
    scope = request.scope if isinstance(request, Request) else request
    context: RequestContext = scope.setdefault("state", {}).setdefault(_NAME, RequestContext())
    return context
