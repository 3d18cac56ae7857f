"""The throttle of signing in: a client that sent wrong keys has to wait before the next, each time longer.

Wrong keys are counted by the address that they came from, and each by itself. While an address waits none
of its keys is looked at, so that guessing is slow; a right key still signs in from any other address. A wrong
key that is tried again and again is refused from all addresses, which can't happen to a right one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil

from starlette.requests import Request

from pgo_collector.http.connection_pool import network_of
from pgo_collector.http.keys import Key, digest_of

# Addresses and keys that are remembered, the last ones: about 2 MB.
_MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Wrong:
    """How many wrong keys there were, and when the wait after the last one ends (`time.monotonic`)."""

    count: int
    ends: float


@dataclass(frozen=True, slots=True)
class SignInThrottle:
    """After `attempts` wrong keys the wait is 1 s; each further one doubles it, up to `longest` seconds."""

    attempts: float
    longest: float
    _wrong: OrderedDict[tuple[str, str], _Wrong] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._wrong)

    def seconds_of_address(self, request: Request) -> int:
        """Return how long the address of a request has to wait, in seconds; 0 for not at all."""
        return self._seconds(_address_of(request))

    def note_wrong(self, request: Request, offered: bytes) -> int:
        """Count a wrong key; return how long that has to wait by itself, 0 if it wasn't tried too often."""
        self._count(_address_of(request))
        tried = ("key", Key(digest_of(offered)).fingerprint)
        if (seconds := self._seconds(tried)) == 0:
            self._count(tried)
        return seconds

    def _seconds(self, of: tuple[str, str]) -> int:
        wrong = self._wrong.get(of)
        return 0 if wrong is None else max(0, ceil(wrong.ends - time.monotonic()))

    def _count(self, of: tuple[str, str]) -> None:
        now = time.monotonic()
        before = self._wrong.pop(of, None)
        count = 1 if before is None or now > before.ends + self.longest else before.count + 1
        wait = min(self.longest, 2.0 ** min(count - self.attempts, 60)) if count >= self.attempts else 0
        self._wrong[of] = _Wrong(count, now + wait)
        if len(self._wrong) > _MOST_REMEMBERED:
            self._wrong.popitem(last=False)


def _address_of(request: Request) -> tuple[str, str]:
    return "address", network_of(request.client.host if request.client else "")
