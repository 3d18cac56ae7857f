"""Profiles on their way: to disk, and from there to the collector."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from pgo_agent.collector import Collector
from pgo_agent.endpoint import Upload
from pgo_agent.errors import CollectorUnavailable, SubmitRefused
from pgo_agent.spool import Dropped, Spool

_LONGEST_SILENCE = 3600.0  # a mistake in a header isn't to end all sending
_log = logging.getLogger(__name__)


class Outbox:
    """Takes profiles, and sees to it that they arrive as far as the spool's bounds allow.

    A profile is spooled first, so that neither an outage nor the end of the process loses it. One that the
    disk has no room for is sent at once, or dropped. `sent` counts the profiles that the collector has taken,
    `spool.dropped` those that it never will. AgentError and OSError stay in here, and are logged.
    """

    def __init__(self, collector: Collector, spool: Spool) -> None:
        self._collector = collector
        self.spool = spool
        self.sent = 0
        self._not_before = 0.0  # of time.monotonic

    def deliver(self, profile: bytes, type_: str | None = None, until: threading.Event | None = None) -> None:
        """Spools a pprof profile, then sends all there is; when `until` is set, it doesn't wait any more.

        `type_` is as for `Collector.submit`.
        """
        until = until or threading.Event()
        if self.post(self._collector.upload(profile, type_), until) and not until.is_set():
            self.flush(until)

    def post(self, upload: Upload, until: threading.Event) -> bool:
        """Spools a profile, for another `flush`; one that can't be kept is sent at once, or dropped.

        False if that couldn't be, since the collector is away.
        """
        if self.spool.put(upload):
            return True
        if until.is_set():
            self._drop(Dropped.UNSENT, "it came too late to be sent")
            return False
        try:
            self._send(upload, until)
        except SubmitRefused as error:
            self._drop(Dropped.REFUSED, str(error))
        except CollectorUnavailable as error:
            self._drop(Dropped.UNSENT, str(error))
            return False
        return True

    def flush(self, until: threading.Event) -> bool:
        """Sends what is in the spool, oldest first, until `until` is set; False if the collector is away."""
        try:
            self.spool.drain(partial(self._send, until=until), until)
        except CollectorUnavailable as error:
            _log.warning("profiles wait in the spool: %s", error)
            return False
        return True

    def _send(self, upload: Upload, until: threading.Event) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            raise CollectorUnavailable(0, "it asked to be left alone", wait)
        try:
            self._collector.send(upload, until)
        except CollectorUnavailable as error:
            self._not_before = time.monotonic() + min(error.retry_after, _LONGEST_SILENCE)
            raise
        self.sent += 1

    def _drop(self, why: Dropped, reason: str) -> None:
        self.spool.dropped[why] += 1
        _log.warning("dropped a profile: %s", reason)
