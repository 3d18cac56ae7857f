"""Run latency trackers for as long as the agent runs, and submit their profiles, one after another."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Self

from pgo_agent.errors import AgentError
from pgo_agent.latency import TRACKERS, Monitor, Recorder, TrackerBackend, TrackerSettings
from pgo_agent.logs import EventLogger
from pgo_agent.outbox import Outbox
from pgo_agent.programs import Programs
from pgo_agent.trace import Step

_MOST_UNSENT = 16  # profiles of all trackers
_log = EventLogger(__name__)


class LatencySchedule:
    """Keep trackers running that were asked for, and submit a profile of each `every` seconds, without gaps.

    `monitors` is where the running trackers are known by name. A tracker that was stopped by a request, or
    that fails, starts again with the next round. Failures are logged. Without an `outbox`, nothing is
    submitted. `programs` gets what waited.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        settings: TrackerSettings,
        monitors: dict[str, Monitor],
        outbox: Outbox | None,
        programs: Programs,
        *,
        every: float,
        backend: TrackerBackend | None = None,
    ) -> None:
        self._settings, self._monitors, self._outbox, self._every = settings, monitors, outbox, every
        self._programs = programs
        self._backend = backend
        self._stopped = Event()
        # Profiles are written and sent while the next ones are being recorded.
        self._sender = ThreadPoolExecutor(1, "pgo-agent-latency-sender")
        self._unsent = threading.BoundedSemaphore(_MOST_UNSENT)
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"pgo-agent-latency-{name}", daemon=True)
            for name in names
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._sender.shutdown()

    def _run(self, name: str) -> None:
        while not self._stopped.is_set():
            due, began = time.monotonic() + self._every, time.time_ns()
            try:
                recorder = self._running(name).record(self._every, self._stopped)
            except (AgentError, OSError) as error:
                _log.warning("tracker failed", tracker=name, reason=error)
                self._stopped.wait(max(0.0, due - time.monotonic()))
                continue
            if self._unsent.acquire(blocking=False):
                self._sender.submit(self._send, name, recorder, Step.since("sample", began))
            else:
                _log.warning("tracker profile dropped", tracker=name)

    def _send(self, name: str, recorder: Recorder, sampled: Step) -> None:
        try:
            self._programs.add(recorder.stacks())
            if self._outbox:
                self._outbox.deliver(
                    recorder.profile(), TRACKERS[name].profile_type, self._stopped, (sampled,)
                )
        except (AgentError, OSError) as error:
            _log.warning("tracker profile failed", tracker=name, reason=error)
        finally:
            self._unsent.release()

    def _running(self, name: str) -> Monitor:
        monitor = self._monitors.get(name)
        if monitor is None or not monitor.session.is_running:
            monitor = Monitor(TRACKERS[name], self._settings, self._backend)
            monitor.start()
            self._monitors[name] = monitor
        return monitor
