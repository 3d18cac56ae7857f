"""Throttle for signing in: a client that sends wrong keys has to wait, longer each time.

Wrong keys are counted by client address, and by key. No key is checked while its address waits, so guessing
is slow; a correct key still signs in from any other address. A wrong key that is tried too often is refused
from all addresses, which can't happen to a correct key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil

from starlette.requests import Request

from pgo_collector.connections.connection_pool import network_of
from pgo_collector.http.keys import Key, digest_of

# The number of addresses and keys to remember, the latest ones: about 2 MB.
_MAX_REMEMBERED = 10_000
# The longest wait after wrong keys.
_LONGEST_SECONDS = 300.0


@dataclass(slots=True)
class _Wrong:
    """The number of wrong keys, and when the wait after the last one ends (`time.monotonic`, seconds)."""

    count: int
    ends: float


@dataclass(frozen=True, slots=True)
class SignInThrottle:
    """The wait is 1 s after `attempts` wrong keys; each further one doubles it, up to five minutes."""

    attempts: float
    _wrong: OrderedDict[tuple[str, str], _Wrong] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._wrong)

    def seconds_of_address(self, request: Request) -> int:
        """Return how many seconds the address of a request has to wait; 0 if it needn't."""
        return self._seconds(_address_of(request))

    def note_wrong(self, request: Request, offered: bytes) -> int:
        """Count a wrong key. Return the seconds that this key has to wait; 0 if it wasn't tried too often."""
        self._count(_address_of(request))
        tried = ("key", Key(digest_of(offered)).fingerprint)
        if (seconds := self._seconds(tried)) == 0:
            self._count(tried)
        return seconds

    def _seconds(self, sender: tuple[str, str]) -> int:
        wrong = self._wrong.get(sender)
        return 0 if wrong is None else max(0, ceil(wrong.ends - time.monotonic()))

    def _count(self, sender: tuple[str, str]) -> None:
        now = time.monotonic()
        before = self._wrong.pop(sender, None)
        count = 1 if before is None or now > before.ends + _LONGEST_SECONDS else before.count + 1
        doubled = 2.0 ** min(count - self.attempts, 60)
        wait = min(_LONGEST_SECONDS, doubled) if count >= self.attempts else 0
        self._wrong[sender] = _Wrong(count, now + wait)
        if len(self._wrong) > _MAX_REMEMBERED:
            self._wrong.popitem(last=False)


def _address_of(request: Request) -> tuple[str, str]:
    return "address", network_of(request.client.host if request.client else "")
