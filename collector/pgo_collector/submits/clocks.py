"""Clocks: how far those of senders are off, as their profiles tell, for answers, the log and the metrics.

A profile from too far after now is stored with the time at which it comes: see `commit.Submission`.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import NamedTuple

import structlog

from pgo_collector.model.series import Series

# Senders that are known at a time, which bounds the metric, and for how many seconds after a profile.
_MOST = 20
_REMEMBERED_SECONDS = 3600.0
_log = structlog.get_logger()


class Sender(NamedTuple):
    """A service, and the label `instance` of its profiles; empty without one."""

    service: str
    instance: str


class Clocks:
    """Knows the senders whose clocks are off. Any thread may call it."""

    def __init__(self) -> None:
        # By sender, the one that was noticed last at the end: the seconds that it is off, and when it was.
        self.off: dict[Sender, tuple[float, float]] = {}
        self._lock = Lock()

    def note(self, series: Series, seconds: float) -> None:
        """Note by how many seconds the clock of a sender is ahead; negative for behind, 0 if it is right."""
        sender = Sender(series.service, dict(series.labels).get("instance", ""))
        with self._lock:
            was_known = self.off.pop(sender, None) is not None
            if seconds:
                self.off[sender] = seconds, time.monotonic()
                if len(self.off) > _MOST:
                    del self.off[next(iter(self.off))]
        if seconds and not was_known:
            _log.warning(
                "clock off", service=sender.service, instance=sender.instance, seconds=round(seconds)
            )

    def seconds_off(self) -> dict[Sender, float]:
        """Return by how many seconds clocks were last off that weren't right since, negative for behind."""
        since = time.monotonic() - _REMEMBERED_SECONDS
        with self._lock:
            self.off = {sender: known for sender, known in self.off.items() if known[1] > since}
            return {sender: off for sender, (off, _) in self.off.items()}
