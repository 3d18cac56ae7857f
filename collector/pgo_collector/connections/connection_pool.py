"""The pool of open connections: its limit, how long each connection may wait, and which one makes room.

Every connection costs a file descriptor, even one on which no request comes. So the pool knows the phase of
each: it waits for a request's head, is idle between two requests, is served, or is closing. When the pool is
full, a new connection takes the place of the one that has waited longest; connections that are being served
stay. Beyond the limit, the pool accepts a few connections for health checks alone, since these must be
answered just then.
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

from pgo_collector.connections.turns import Turns
from pgo_collector.settings import Settings

# For the files of the catalog, the profiles that are read or written, and the sockets of the workers.
_DESCRIPTORS_FOR_FILES = 256
# The size and number of a request's headers, the length of its URL, and the mean size of a body's chunks.
_HEADER_BYTES, MOST_HEADERS, _URL_BYTES, _CHUNK_BYTES = 64 << 10, 100, 16 << 10, 64
# Why a connection or a request on it is refused, or a connection is closed.
REFUSALS = (
    "answer_timeout",
    "chunks",
    "connections",
    "connections_per_address",
    "head_timeout",
    "headers",
    "heads",
    "made_way",
    "malformed",
    "url_bytes",
)
_HEALTH_CHECKS = 16
_HEALTH_CHECK_SECONDS = 5.0
_CLOSING_SECONDS = 5.0
# The pause between two searches for a stuck connection in a full pool, since each looks at all connections.
_SEARCH_SECONDS = 0.1
_LOG_SECONDS = 60.0
_log = structlog.get_logger()


class Phase(Enum):
    """The phase of a connection."""

    HEAD = auto()  # It waits for the head of a request: it is new, or the first byte has arrived.
    IDLE = auto()  # It has answered every request, and no next one has begun.
    SERVED = auto()  # It is answering a request.
    LEAVING = auto()  # It closes once the rest of an answer is sent.
    CLOSING = auto()  # It was refused, and drops what still arrives.


class Admission(Enum):
    """How the pool admits a new connection."""

    SERVED = auto()
    HEALTH_CHECK = auto()
    TOO_MANY_OF_ADDRESS = auto()


class PooledConnection(Protocol):
    """A connection as the pool sees it."""

    phase: Phase
    address: str

    def is_stuck(self) -> bool:
        """Return whether it is served, but its client has neither sent nor read anything for seconds."""

    def expire(self) -> None:
        """Close it: it has been in its phase for too long."""

    def evict(self) -> None:
        """Close it at once, to make room for another."""

    def refuse_head(self) -> None:
        """Refuse the unfinished head that it has, to make room for others."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on connections and requests, from the settings `PGOF_MAX_…` and `PGOF_…_TIMEOUT`."""

    header_bytes: int
    headers: int
    chunk_bytes: int
    heads_bytes: int
    url_bytes: int
    head_seconds: float
    idle_seconds: float
    answer_seconds: float
    connections: int
    connections_per_address: float

    @classmethod
    def of(cls, settings: Settings, descriptors: int, backlog: int) -> ConnectionLimits:
        """Return the limits in the settings, with no more connections than the `descriptors` allow.

        Some descriptors stay spare, since the kernel may hand over up to `backlog` connections at once,
        before any can be evicted.
        """
        spare = _DESCRIPTORS_FOR_FILES + _HEALTH_CHECKS + backlog
        most = max(descriptors - spare, descriptors // 2)
        if most < settings.max_connections:
            _log.warning(
                "connection limit lowered",
                connections=most,
                descriptors=descriptors,
            )
        return cls(
            header_bytes=_HEADER_BYTES,
            headers=MOST_HEADERS,
            chunk_bytes=_CHUNK_BYTES,
            heads_bytes=settings.body_memory_bytes // 4,
            url_bytes=_URL_BYTES,
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
    """Return the part of an address that a client can't choose: all of an IPv4 address, an IPv6 one's /64.

    Anything that isn't an address is returned as it is.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class _Queue(OrderedDict[PooledConnection, float]):
    """Connections in one phase, the longest waiting first, each with its deadline in the loop's clock."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    @property
    def first(self) -> PooledConnection:
        """The connection that has waited longest."""
        return next(iter(self))

    @property
    def first_deadline(self) -> float:
        """The deadline of that connection; inf if there is none."""
        return next(iter(self.values()), inf)


class ConnectionPool:
    """The open connections of a server. It calls `count_refused` with the reason of each refusal."""

    def __init__(self, limits: ConnectionLimits, count_refused: Callable[[str], None]) -> None:
        self.limits = limits
        self.turns = Turns()
        self._count_refused = count_refused
        self._open: OrderedDict[PooledConnection, None] = OrderedDict()
        self._closing = _Queue(_CLOSING_SECONDS)
        self._idle = _Queue(limits.idle_seconds)
        self._heads = _Queue(limits.head_seconds)
        self._health_checks = _Queue(_HEALTH_CHECK_SECONDS)
        self._leaving = _Queue(_CLOSING_SECONDS)
        self._timed = (self._closing, self._leaving, self._idle, self._heads, self._health_checks)
        self._queues = {
            Phase.CLOSING: self._closing,
            Phase.LEAVING: self._leaving,
            Phase.IDLE: self._idle,
            Phase.HEAD: self._heads,
        }
        # The bytes of each unfinished head, of which the first began first, and of all.
        self._head_bytes: dict[PooledConnection, int] = {}
        self._all_head_bytes = 0
        self._per_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._searched_at = -inf
        self._unlogged: Counter[str] = Counter()
        self._logged_at = -inf

    def __len__(self) -> int:
        return len(self._open) + len(self._health_checks)

    def admit(self, connection: PooledConnection) -> Admission:
        """Add a new connection; if the pool is full, evict one that waits."""
        self._per_address[connection.address] += 1
        if len(self._open) >= self.limits.connections and not self._make_room():
            if len(self._health_checks) >= _HEALTH_CHECKS:
                self._evict(self._health_checks.first, "connections")
            self._append(self._health_checks, connection)
            return Admission.HEALTH_CHECK
        self._open[connection] = None
        self.enter(connection, Phase.HEAD)
        if self._per_address[connection.address] > self.limits.connections_per_address:
            return Admission.TOO_MANY_OF_ADDRESS
        return Admission.SERVED

    def enter(self, connection: PooledConnection, phase: Phase) -> None:
        """Move a connection to a phase, or begin its phase again."""
        if (left := self._queues.get(connection.phase)) is not None:
            left.pop(connection, None)
        if phase is not Phase.HEAD:
            self._forget_head(connection)
        connection.phase = phase
        if connection in self._open and (entered := self._queues.get(phase)) is not None:
            self._append(entered, connection)

    def remove(self, connection: PooledConnection) -> None:
        """Remove a connection that is closed or being closed; it may have been removed already."""
        if connection in self._open:
            del self._open[connection]
        elif self._health_checks.pop(connection, None) is None:
            return
        if (queue := self._queues.get(connection.phase)) is not None:
            queue.pop(connection, None)
        self._forget_head(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]

    def note_head(self, connection: PooledConnection, size: int) -> None:
        """Note the bytes of an unfinished head; if all have too many, refuse those that began first."""
        self._all_head_bytes += size - self._head_bytes.get(connection, 0)
        self._head_bytes[connection] = size
        while self._all_head_bytes > self.limits.heads_bytes:
            next(iter(self._head_bytes)).refuse_head()

    def count_refusal(self, reason: str) -> None:
        """Count a refusal. One line a minute logs them all, so that a flood doesn't fill the log."""
        self._count_refused(reason)
        self._unlogged[reason] += 1
        if (now := time.monotonic()) > self._logged_at + _LOG_SECONDS:
            self._logged_at = now
            _log.warning("requests refused", open=len(self), reasons=dict(self._unlogged))
            self._unlogged.clear()

    def _forget_head(self, connection: PooledConnection) -> None:
        if size := self._head_bytes.pop(connection, 0):
            self._all_head_bytes -= size

    def _make_room(self) -> bool:
        for queue in (self._closing, self._idle, self._heads):
            if queue:
                self._evict(queue.first, "made_way")
                return True
        now = time.monotonic()
        if now < self._searched_at + _SEARCH_SECONDS:
            return False
        stuck = next((connection for connection in self._open if connection.is_stuck()), None)
        if stuck is None:
            self._searched_at = now
            return False
        self._evict(stuck, "made_way")
        return True

    def _evict(self, connection: PooledConnection, reason: str) -> None:
        self.remove(connection)
        self.count_refusal(reason)
        connection.evict()

    def _append(self, queue: _Queue, connection: PooledConnection) -> None:
        queue[connection] = deadline = asyncio.get_running_loop().time() + queue.seconds
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer to the earliest deadline of all connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = min(queue.first_deadline for queue in self._timed)
        if deadline < inf:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        for queue in self._timed:
            while queue.first_deadline <= now:
                connection = queue.first
                if queue is self._health_checks:
                    self.remove(connection)
                else:
                    del queue[connection]
                connection.expire()
        self._set_timer()
