"""The open connections: how many there may be, which waits for what, and which makes room for another.

One connection costs a file descriptor, whether or not a request ever comes on it. So each is in one phase: it
waits for a request's head, is idle between two requests, is served, or is closing. When there are as many as
there may be, the one that has waited longest gives way to the next; only those that are being served stay.
Beyond the limit a few are taken for health checks alone, which have to be answered just then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Protocol

import structlog

from pgo_collector.settings import Settings

# Files of the catalog, of profiles that are read or written, and the pipes to the workers.
_DESCRIPTORS_FOR_FILES = 256
# Why a connection is refused or closed, or a request on it.
REFUSALS = (
    "answer_timeout",
    "connections",
    "connections_per_address",
    "head_timeout",
    "headers",
    "made_way",
    "malformed",
    "url_bytes",
)
_HEALTH_CHECKS = 16
_HEALTH_CHECK_SECONDS = 5.0
_LINGERING_SECONDS = 5.0
# A server that is full looks no more often for connections that are stuck, since it looks at all of them.
_LOOK_SECONDS = 0.1
_LOG_SECONDS = 60.0
_log = structlog.get_logger()


class Phase(Enum):
    """What a connection is doing."""

    HEAD = auto()  # The head of a request is awaited, on a new connection or since its first byte.
    IDLE = auto()  # Every request was answered, and none has begun.
    SERVED = auto()  # A request is being answered.
    LEAVING = auto()  # It closes when the rest of an answer is sent.
    CLOSING = auto()  # It was refused, and what still arrives is dropped.


class Admission(Enum):
    """What a new connection may do."""

    SERVED = auto()
    HEALTH_CHECK = auto()
    TOO_MANY_OF_ADDRESS = auto()


class Pooled(Protocol):
    """A connection, as the pool needs it."""

    phase: Phase
    address: str

    def is_stuck(self) -> bool:
        """Whether it is served, but the client has neither sent nor read anything for seconds."""

    def expire(self) -> None:
        """Close it, since it has been in its phase for too long."""

    def evict(self) -> None:
        """Close it at once, in favour of another."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What the connections may be; see the settings of these names."""

    header_bytes: int
    headers: int
    url_bytes: int
    head_seconds: float
    idle_seconds: float
    answer_seconds: float
    connections: int
    connections_per_address: float

    @classmethod
    def of(cls, settings: Settings, descriptors: int, backlog: int) -> ConnectionLimits:
        """Return the limits of the settings, with no more connections than file descriptors allow.

        The kernel hands over up to `backlog` connections in one go, before any of them can make way.
        """
        spare = _DESCRIPTORS_FOR_FILES + _HEALTH_CHECKS + backlog
        most = max(descriptors - spare, descriptors // 2)
        if most < settings.max_connections:
            _log.warning(
                "fewer connections than PGOF_MAX_CONNECTIONS, for lack of file descriptors",
                connections=most,
                descriptors=descriptors,
            )
        return cls(
            header_bytes=settings.max_header_bytes,
            headers=settings.max_headers,
            url_bytes=settings.max_url_bytes,
            head_seconds=settings.head_timeout,
            idle_seconds=settings.idle_timeout,
            answer_seconds=settings.answer_timeout,
            connections=min(settings.max_connections, most),
            connections_per_address=settings.max_connections_per_address,
        )


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of file descriptors to the hard one, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def network_of(host: str) -> str:
    """Return what one client can't choose freely of its address: all of IPv4, the first 64 bits of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class _Queue(OrderedDict[Pooled, float]):
    """Connections that wait, the longest first, each with the time of the loop when it has for too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    @property
    def first(self) -> Pooled:
        """The connection that has waited longest."""
        return next(iter(self))

    @property
    def first_ends(self) -> float:
        """When that one has waited for too long; infinite if there is none."""
        return next(iter(self.values()), inf)


class ConnectionPool:
    """The open connections of a server. `count_refused` is called with the reason of each refusal."""

    def __init__(self, limits: ConnectionLimits, count_refused: Callable[[str], None]) -> None:
        self.limits = limits
        self._count_refused = count_refused
        self._open: OrderedDict[Pooled, None] = OrderedDict()
        self._closing = _Queue(_LINGERING_SECONDS)
        self._idle = _Queue(limits.idle_seconds)
        self._heads = _Queue(limits.head_seconds)
        self._health_checks = _Queue(_HEALTH_CHECK_SECONDS)
        self._leaving = _Queue(_LINGERING_SECONDS)
        self._timed = (self._closing, self._leaving, self._idle, self._heads, self._health_checks)
        self._queues = {
            Phase.CLOSING: self._closing,
            Phase.LEAVING: self._leaving,
            Phase.IDLE: self._idle,
            Phase.HEAD: self._heads,
        }
        self._of_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = -inf
        self._unlogged: Counter[str] = Counter()
        self._logged_at = -inf

    def __len__(self) -> int:
        return len(self._open) + len(self._health_checks)

    def admit(self, connection: Pooled) -> Admission:
        """Take in a new connection; if there are too many, in the place of one that waits."""
        self._of_address[connection.address] += 1
        if len(self._open) >= self.limits.connections and not self._make_room():
            if len(self._health_checks) >= _HEALTH_CHECKS:
                self._evict(self._health_checks.first, "connections")
            self._append(self._health_checks, connection)
            return Admission.HEALTH_CHECK
        self._open[connection] = None
        self.enter(connection, Phase.HEAD)
        if self._of_address[connection.address] > self.limits.connections_per_address:
            return Admission.TOO_MANY_OF_ADDRESS
        return Admission.SERVED

    def enter(self, connection: Pooled, phase: Phase) -> None:
        """Note that a connection's phase is another, or begins anew."""
        if (left := self._queues.get(connection.phase)) is not None:
            left.pop(connection, None)
        connection.phase = phase
        if connection in self._open and (entered := self._queues.get(phase)) is not None:
            self._append(entered, connection)

    def remove(self, connection: Pooled) -> None:
        """Forget a connection that is closed, or as good as closed; it may have been forgotten already."""
        if connection in self._open:
            del self._open[connection]
        elif self._health_checks.pop(connection, None) is None:
            return
        if (queue := self._queues.get(connection.phase)) is not None:
            queue.pop(connection, None)
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]

    def refused(self, reason: str) -> None:
        """Count a refusal. All are logged in one line a minute: a line for each would help a flood."""
        self._count_refused(reason)
        self._unlogged[reason] += 1
        if (now := time.monotonic()) > self._logged_at + _LOG_SECONDS:
            self._logged_at = now
            _log.warning("requests or connections refused", open=len(self), reasons=dict(self._unlogged))
            self._unlogged.clear()

    def _make_room(self) -> bool:
        for queue in (self._closing, self._idle, self._heads):
            if queue:
                self._evict(queue.first, "made_way")
                return True
        now = time.monotonic()
        if now < self._looked_at + _LOOK_SECONDS:
            return False
        stuck = next((connection for connection in self._open if connection.is_stuck()), None)
        if stuck is None:
            self._looked_at = now
            return False
        self._evict(stuck, "made_way")
        return True

    def _evict(self, connection: Pooled, reason: str) -> None:
        self.remove(connection)
        self.refused(reason)
        connection.evict()

    def _append(self, queue: _Queue, connection: Pooled) -> None:
        queue[connection] = ends = asyncio.get_running_loop().time() + queue.seconds
        if self._timer is None or self._timer.when() > ends:
            self._set_timer()

    def _set_timer(self) -> None:
        """Set the one timer to when the first connection of all has waited for too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        first_ends = min(queue.first_ends for queue in self._timed)
        if first_ends < inf:
            self._timer = asyncio.get_running_loop().call_at(first_ends, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for queue in self._timed:
            while queue.first_ends <= now:
                connection = queue.first
                if queue is self._health_checks:
                    self.remove(connection)
                else:
                    del queue[connection]
                connection.expire()
        self._set_timer()
