"""Signatures: which requests are to be traced, proved by an HMAC of ours or of OSProfiler.

    traceparent: 00-<trace id>-<span id>-01
    PGO-Trace-Signature: t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<traceparent>", in hex>

What a client reports afterwards is in a header, too, and then the HMAC is of "<t>.<traceparent>.<steps>";
`reports` has its form.

The trace id and the span id are W3C's: https://www.w3.org/TR/trace-context/. A signature is good for a window
around its time and for one request. OSProfiler's headers have no time, and are good as long as the key is:

    X-Trace-Info: <urlsafe base64 of the JSON {"base_id": UUID, "parent_id": UUID}>
    X-Trace-HMAC: <HMAC-SHA1 of this base64 text, in hex>
"""

from __future__ import annotations

import base64
import hmac
import json
import random
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from pgo_collector.traces.spans import new_id

TRACEPARENT, SIGNATURE, STEPS = "traceparent", "PGO-Trace-Signature", "PGO-Trace-Steps"
TRACE_INFO, TRACE_HMAC = "X-Trace-Info", "X-Trace-HMAC"
_TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
_SIGNATURE = re.compile(rb"t=([0-9]{1,12}),v1=([0-9a-f]{64})")
_INFO = re.compile(rb"[A-Za-z0-9_-]{1,512}={0,2}")
_SHA1_HEX = re.compile(rb"[0-9a-f]{40}")

# Signatures that are remembered within the window, so that none is used twice. While there are more, further
# requests aren't traced.
_MOST_REMEMBERED = 65_536

Refusal = Literal["malformed", "bad_signature", "expired", "replayed", "too_many"]


class Answered(NamedTuple):
    """A traced request that has its answer: the service that it was about, and its times in ns since 1970."""

    service: str
    start: int
    end: int


class Origin(NamedTuple):
    """The trace that a request is part of: ids of 32 and 16 hex digits; `parent` is empty for a new trace."""

    trace: str
    parent: str


def new_trace_id() -> str:
    """Return a new trace's id, 32 hex digits."""
    return f"{random.getrandbits(128) or 1:032x}"


def sign(key: bytes, trace: str, parent: str, seconds: int, steps: str | None = None) -> dict[str, str]:
    """Return the headers that have one request traced, signed at a time in seconds since 1970."""
    traceparent = f"00-{trace}-{parent}-01"
    told = {} if steps is None else {STEPS: steps}
    digest = _sha256(key, seconds, ".".join([traceparent, *told.values()]).encode())
    return {TRACEPARENT: traceparent, SIGNATURE: f"t={seconds},v1={digest}", **told}


def sign_as_osprofiler(key: bytes, base_id: str, parent_id: str) -> dict[str, str]:
    """Return the headers that OSProfiler's middleware takes; the ids are UUIDs."""
    info = base64.urlsafe_b64encode(json.dumps({"base_id": base_id, "parent_id": parent_id}).encode())
    return {TRACE_INFO: info.decode(), TRACE_HMAC: _sha1(key, info)}


def uuids_of(trace: str, parent: str) -> tuple[str, str]:
    """Return the UUIDs that stand for a trace and a span in OSProfiler's headers."""
    return str(uuid.UUID(trace)), str(uuid.UUID(int=int(parent, 16)))


def new_origin() -> Origin:
    """Return a new trace, and a span in it for the client."""
    return Origin(new_trace_id(), new_id())


class _Used(NamedTuple):
    """A used signature: until when it is remembered, its key, and its request once that is answered."""

    until: float
    key: bytes
    request: Answered | None = None


class Verifier:
    """Checks signatures against keys, within `window` seconds, each once."""

    def __init__(self, window: float) -> None:
        self.window = window
        # Those that expire first come first, in seconds of the wall clock.
        self._used: OrderedDict[Origin, _Used] = OrderedDict()

    def check(self, headers: Mapping[bytes, bytes], keys: Sequence[bytes]) -> Origin | Refusal:
        """Return the trace that a request with these headers belongs to, or why it isn't traced.

        Each key is compared in constant time.
        """
        if (signature := headers.get(SIGNATURE.lower().encode())) is not None:
            steps = headers.get(STEPS.lower().encode())
            return self._check_w3c(headers.get(TRACEPARENT.encode(), b""), steps, signature, keys)
        info = headers.get(TRACE_INFO.lower().encode(), b"")
        return _check_osprofiler(info, headers.get(TRACE_HMAC.lower().encode(), b""), keys)

    def _check_w3c(
        self, traceparent: bytes, steps: bytes | None, signature: bytes, keys: Sequence[bytes]
    ) -> Origin | Refusal:
        parent, signed = _TRACEPARENT.fullmatch(traceparent), _SIGNATURE.fullmatch(signature)
        if parent is None or signed is None:
            return "malformed"
        seconds, given = int(signed[1]), signed[2].decode()
        what = traceparent if steps is None else b"%b.%b" % (traceparent, steps)
        matching = [hmac.compare_digest(_sha256(key, seconds, what), given) for key in keys]
        if True not in matching:
            return "bad_signature"
        now = time.time()
        if abs(now - seconds) > self.window:
            return "expired"
        origin = Origin(parent[1].decode(), parent[2].decode())
        if origin in self._used:
            return "replayed"
        self._forget(now)
        if len(self._used) >= _MOST_REMEMBERED:
            return "too_many"
        self._used[origin] = _Used(now + 2 * self.window, keys[matching.index(True)])  # however early it was
        return origin

    def note(self, origin: Origin, request: Answered) -> None:
        """Remember the request of a signature, for as long as a signature made now is."""
        if (used := self._used.pop(origin, None)) is not None:
            self._used[origin] = _Used(time.time() + 2 * self.window, used.key, request)

    def requests_of(self, report: Origin, spans: Iterable[str]) -> dict[str, Answered]:
        """Return the requests, by span, that were signed with the key of a report, for its trace."""
        key = self._used[report].key
        found = ((span, self._used.get(Origin(report.trace, span))) for span in spans)
        return {span: used.request for span, used in found if used and used.request and used.key == key}

    def _forget(self, now: float) -> None:
        while self._used and next(iter(self._used.values())).until < now:
            self._used.popitem(last=False)


def _check_osprofiler(info: bytes, given: bytes, keys: Sequence[bytes]) -> Origin | Refusal:
    if not _INFO.fullmatch(info) or not _SHA1_HEX.fullmatch(given):
        return "malformed"
    matching = [hmac.compare_digest(_sha1(key, info), given.decode()) for key in keys]
    if True not in matching:
        return "bad_signature"
    try:
        ids = json.loads(base64.urlsafe_b64decode(info))
        base, parent = uuid.UUID(ids["base_id"]), uuid.UUID(ids["parent_id"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return "malformed"
    if not base.int:
        return "malformed"
    # As OSProfiler itself shortens the ids of spans for other tracers.
    return Origin(base.hex, f"{parent.int & (1 << 64) - 1 or 1:016x}")


def _sha256(key: bytes, seconds: int, what: bytes) -> str:
    return hmac.digest(key, b"%d.%b" % (seconds, what), "sha256").hex()


def _sha1(key: bytes, info: bytes) -> str:
    return hmac.digest(key, info, "sha1").hex()
