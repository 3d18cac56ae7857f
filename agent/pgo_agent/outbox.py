"""Deliver profiles to the collector by way of a spool on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pgo_agent.collector import Collector
from pgo_agent.endpoint import Upload
from pgo_agent.errors import CollectorUnavailable, KeyRefused, SubmitRefused
from pgo_agent.logs import EventLogger
from pgo_agent.spool import Dropped, Spool
from pgo_agent.trace import Step, new_trace_id

_LONGEST_SILENCE = 3600.0  # a wrong Retry-After header must not end all sending
_LAST_SILENCE = 60.0  # after a failed attempt of an agent that is stopping
_log = EventLogger(__name__)


class Outbox:
    """Spool profiles, then send them to the collector, oldest first.

    Each profile is written to the spool before it is sent, so neither an outage nor the end of the process
    loses it. A profile that the spool can't keep is sent at once, or dropped. `sent` counts the profiles that
    the collector has accepted, `spool.dropped` the ones that were given up, and `key_refused` how often the
    collector refused the key: profiles stay in the spool then, and are sent again as after an outage. If
    requests are traced, each profile has a trace of its own, whose id is logged. Methods log AgentError and
    OSError instead of raising them.
    """

    def __init__(self, collector: Collector, spool: Spool) -> None:
        self._collector = collector
        self.spool = spool
        self.sent = 0
        self.key_refused = 0
        self._not_before = 0.0  # of time.monotonic

    def deliver(
        self,
        profile: bytes,
        type_: str | None = None,
        until: threading.Event | None = None,
        steps: Sequence[Step] = (),
    ) -> None:
        """Spool a pprof profile, then send everything in the spool; stop waiting once `until` is set.

        `type_` is the profile type, as for `Collector.submit`, and `steps` are what was done with it so far.
        """
        until = until or threading.Event()
        if self.post(self._collector.upload(profile, type_), until, steps) and not until.is_set():
            self.flush(until)

    def post(self, upload: Upload, until: threading.Event, steps: Sequence[Step] = ()) -> bool:
        """Spool a profile for a later `flush`. If the spool can't keep it, send it at once or drop it.

        `steps` are what was done with it so far. Once `until` is set, sending is tried only once. Returns
        False if the profile was dropped because the collector is unavailable or refuses the key.
        """
        if self._collector.trace_id is not None:
            upload = replace(upload, steps=(*steps,))
        if self.spool.put(upload):
            return True
        try:
            self._send(upload, until, patient=True)
        except KeyRefused as error:
            self._drop(Dropped.UNSENT, str(error))
            return False
        except SubmitRefused as error:
            self._drop(Dropped.REFUSED, str(error))
        except CollectorUnavailable as error:
            self._drop(Dropped.UNSENT, str(error))
            return False
        return True

    def flush(self, until: threading.Event) -> bool:
        """Send what is in the spool, oldest first, until `until` is set; return False in an outage.

        A refused key is an outage for the profiles of its service.
        """
        return self._drain(until, until)

    def end(self, seconds: float) -> None:
        """Send what is in the spool for `seconds` at most, in an attempt each; log how many profiles stay."""
        once, late = threading.Event(), threading.Event()
        once.set()
        timer = threading.Timer(seconds, late.set)
        timer.start()
        self._drain(late, once)
        timer.cancel()
        if left := self.spool.waiting():
            _log.warning("profiles kept", count=left)

    def _drain(self, until: threading.Event, patient_until: threading.Event) -> bool:
        try:
            self.spool.drain(partial(self._send, until=patient_until), until)
        except CollectorUnavailable as error:
            _log.warning("collector unavailable", reason=error)
            return False
        except KeyRefused:
            return False
        return True

    def _send(self, upload: Upload, until: threading.Event, *, patient: bool = False) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            raise CollectorUnavailable(0, "the last attempt failed, and it is too early for another", wait)
        trace_id = None if self._collector.trace_id is None else new_trace_id()
        try:
            nanos = self._collector.send(upload, until, trace_id, patient=patient)
        except KeyRefused as error:
            self.key_refused += 1
            _log.error("key refused", service=dict(upload.query).get("service", ""), reason=error)
            raise
        except CollectorUnavailable as error:
            # An agent that stops doesn't wait for an unavailable collector once for each profile.
            silence = _LAST_SILENCE if until.is_set() else min(error.retry_after, _LONGEST_SILENCE)
            self._not_before = time.monotonic() + silence
            raise
        self.sent += 1
        query = dict(upload.query)
        traced = {} if trace_id is None else {"ms": f"{nanos / 1e6:.3f}", "trace": trace_id}
        described = {"type": query.get("type", "cpu"), "service": query.get("service", "")}
        _log.info("profile sent", **described, bytes=len(upload.body), **traced)

    def _drop(self, why: Dropped, reason: str) -> None:
        self.spool.dropped[why] += 1
        _log.warning("profile dropped", reason=reason)
