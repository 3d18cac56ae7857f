"""Profile the process that this runs in, again and again, and submit the profiles."""

from __future__ import annotations

import atexit
import math
import os
import random
import threading
import time
from threading import Event
from typing import Protocol, Self

from pgo_agent.collector import Collector
from pgo_agent.errors import Stopped
from pgo_agent.logs import EventLogger
from pgo_agent.outbox import Outbox
from pgo_agent.spool import NoSpool, Spool
from pgo_agent.stack_sampler import StackSampler
from pgo_agent.trace import Step

_log = EventLogger(__name__)
_running: ContinuousProfiler | None = None


class Sampler(Protocol):
    """Anything that can take a profile. `ContinuousProfiler` uses `StackSampler` unless given another."""

    def sample(self, duration: float, until: Event) -> bytes:
        """Return a pprof CPU profile of the next `duration` seconds, ended early when `until` is set.

        Blocks until then, on the thread of its caller. If it raises, the profiler logs the error and sends
        no profile.
        """


class ContinuousProfiler:
    """Take a profile of `duration` seconds once in each `every` seconds, on a thread of its own.

    The first profile begins after a random delay of at most `jitter` seconds (default: `every`), so that
    processes that start together spread out, and stay spread out. Each profile goes to the `spool`, and from
    there to the collector, together with all profiles that wait in the spool. If sending takes longer than
    `every`, as in an outage, rounds are skipped.

    Nothing raises after the constructor. Failures are logged and counted in `failures`, and the next round
    runs as usual. Only one profiler runs in a process at a time; starting a second one logs an error. A
    forked child profiles itself, too. When the interpreter exits, the running profile is cut short and
    spooled; without a spool it is sent, if the collector answers within 5 s.
    """

    def __init__(
        self,
        collector: Collector,
        *,
        spool: Spool | None = None,
        sampler: Sampler | None = None,
        every: float = 3600.0,
        duration: float = 60.0,
        jitter: float | None = None,
    ) -> None:
        if not 0 < duration <= every:
            raise ValueError("duration must be more than 0, and no more than every")
        if jitter is not None and jitter < 0:
            raise ValueError("jitter must be at least 0")
        self._sampler = StackSampler() if sampler is None else sampler
        self._every, self._duration = every, duration
        self._jitter = every if jitter is None else jitter
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self.outbox = Outbox(collector, NoSpool() if spool is None else spool)
        self.failures = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start profiling. Does nothing if this profiler is running already."""
        global _running  # noqa: PLW0603 - a process has one set of stacks to sample
        if _running is not None:
            if _running is not self:
                _log.error("profiler already running")
            return
        _running = self
        atexit.register(self.stop)
        self._begin()

    def stop(self, patience: float = 5.0) -> None:
        """Stop within `patience` seconds. The running profile is cut short, and spooled or sent."""
        global _running  # noqa: PLW0603 - as above
        if _running is not self:
            return
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(patience)
            if self._thread.is_alive():
                _log.warning("profile unfinished")
        atexit.unregister(self.stop)
        _running = None

    def resume(self) -> None:
        """Start again in a forked child, which has none of its parent's threads."""
        self._begin()

    def _begin(self) -> None:
        # A new event: an earlier thread's must stay set, and a lock in the parent's may be held forever.
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(self._stopped,), name="pgo-agent", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:
            self.failures += 1
            _log.exception("thread not started")

    def _run(self, stopped: threading.Event) -> None:
        first = time.monotonic() + random.uniform(0, self._jitter)  # noqa: S311 - spreads load, guards nothing
        due = first
        while not stopped.wait(max(0.0, due - time.monotonic())):
            try:
                began = time.time_ns()
                profile = self._sampler.sample(self._duration, stopped)
                self.outbox.deliver(profile, until=stopped, steps=(Step.since("sample", began),))
            except Stopped as error:
                _log.info("profile not taken", reason=error)
            except Exception:  # noqa: BLE001 - no error may harm the program that is profiled
                self.failures += 1
                _log.exception("profile failed")
            rounds = math.floor((time.monotonic() - first) / self._every) + 1
            due = first + rounds * self._every


def _resume_in_child() -> None:
    if _running is not None:
        _running.resume()


os.register_at_fork(after_in_child=_resume_in_child)
