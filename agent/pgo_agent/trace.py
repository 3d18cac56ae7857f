"""Sign requests, so that the collector records where the time of each goes.

Each attempt has an id of its own in one trace, and a signature that is good once, around its time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Generator

import httpx


class Traced(httpx.Auth):
    """Send a signature besides what another auth sends; `trace_id` is the id of the trace, in hex."""

    def __init__(self, auth: httpx.Auth, key: str) -> None:
        self.trace_id = secrets.token_hex(16)
        self._auth = auth
        self._key = key.strip().encode()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add the headers to a request, as httpx.Auth documents."""
        traceparent, seconds = f"00-{self.trace_id}-{secrets.token_hex(8)}-01", int(time.time())
        digest = hmac.new(self._key, f"{seconds}.{traceparent}".encode(), hashlib.sha256).hexdigest()
        request.headers["traceparent"] = traceparent
        request.headers["PGO-Trace-Signature"] = f"t={seconds},v1={digest}"
        yield from self._auth.auth_flow(request)
