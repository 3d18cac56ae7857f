"""Clocks: how far those of senders are off, as their profiles tell, for answers, the log and the metrics.

A profile from too far after now is stored with the time at which it comes: see `commit.Submission`.
"""

from __future__ import annotations

import time
from math import inf
from threading import Lock
from typing import NamedTuple

import structlog

from pgo_collector.model.series import Series
from pgo_collector.model.times import DAY_NANOS

# Senders that are known at a time, which bounds the metric, and for how many seconds after a profile.
_MOST = 20
_REMEMBERED_SECONDS = 3600.0
_log = structlog.get_logger()


class Sender(NamedTuple):
    """A service, and the label `instance` of its profiles; empty without one."""

    service: str
    instance: str


class Clocks:
    """Knows the senders whose clocks are off. Any thread may call it.

    A sender's clock is ahead if its profile is stored with another time than it says, and behind, or its
    profile is old, if retention deletes what is older than `keep_days`.
    """

    def __init__(self, keep_days: float = inf) -> None:
        self._keep_nanos = keep_days * DAY_NANOS
        # By sender, the one that was noticed last at the end: the seconds that it is off, and when it was.
        self._off: dict[Sender, tuple[float, float]] = {}
        self._lock = Lock()

    def note(self, series: Series, said_nanos: int, stored_nanos: int) -> float:
        """Return by how many seconds the clock of a profile's sender is ahead, negative if it is behind.

        `said_nanos` is when the profile was taken by that clock, 0 if it doesn't say it, and `stored_nanos`
        the time that it is stored with, both in ns since 1970.
        """
        if not said_nanos:
            return 0.0
        ahead = max(said_nanos - stored_nanos, 0)
        behind = time.time_ns() - stored_nanos
        off = (ahead or (-behind if behind > self._keep_nanos else 0)) / 10**9
        if off or self._off:
            self._keep(Sender(series.service, dict(series.labels).get("instance", "")), off)
        return off

    def _keep(self, sender: Sender, off: float) -> None:
        with self._lock:
            was_known = self._off.pop(sender, None) is not None
            if off:
                self._off[sender] = off, time.monotonic()
                if len(self._off) > _MOST:
                    del self._off[next(iter(self._off))]
        if off and not was_known:
            _log.warning("clock off", service=sender.service, instance=sender.instance, seconds=round(off))

    def seconds_off(self) -> dict[Sender, float]:
        """Return by how many seconds clocks were last off that weren't right since, negative for behind."""
        since = time.monotonic() - _REMEMBERED_SECONDS
        with self._lock:
            self._off = {sender: known for sender, known in self._off.items() if known[1] > since}
            return {sender: off for sender, (off, _) in self._off.items()}
