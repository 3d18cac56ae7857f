"""Read a request for a capture, run one capture at a time on a machine, and let others stop it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, Self

from pgo_agent.backends import Backend, Bcc, Bpftrace, KeptBcc, Perf, ProcessSampler, choose
from pgo_agent.errors import AgentError, Stopped
from pgo_agent.native import native_profile
from pgo_agent.programs import Programs
from pgo_agent.serve.requests import RequestRefused, json_object

_BACKENDS: Mapping[str, type[Bcc | Perf | Bpftrace]] = {
    "BccProfile": Bcc,
    "Perf": Perf,
    "Bpftrace": Bpftrace,
}
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Sample with `backend` at `frequency` (samples per second) for `duration` seconds.

    The answer is gzipped if `archive` is true.
    """

    backend: Backend
    frequency: int
    duration: int
    archive: bool

    @classmethod
    def parse(cls, body: bytes, allowed_programs: Collection[str]) -> Self:
        """Return the request in a JSON body, which may name one of `allowed_programs` as its profiler.

        Raises RequestRefused: 400 if the body isn't JSON, 422 if a value is wrong or not allowed.
        """
        fields = json_object(body)
        return cls(
            backend=_backend(fields.get("profiler"), allowed_programs),
            frequency=_number(fields, "sampling_frequency", 100, 1000),
            duration=_number(fields, "timeout_seconds", 5, 60),
            archive=_archive(fields.get("archive", False)),
        )


def _backend(profiler: object, allowed_programs: Collection[str]) -> Backend:
    if not isinstance(profiler, dict) or len(profiler) != 1 or not profiler.keys() <= _BACKENDS.keys():
        names = ", ".join(f'{{"{name}": null}}' for name in _BACKENDS)
        raise RequestRefused(422, f"profiler must be one of {names}.")
    ((name, program),) = profiler.items()
    if program is None:
        return _BACKENDS[name]()
    if not isinstance(program, str) or program not in allowed_programs:
        raise RequestRefused(422, f"profiler: {program!r} is not a program that this agent's settings allow.")
    return _BACKENDS[name](program)


def _number(fields: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise RequestRefused(422, f"{name} must be a whole number from 1 to {most}.")
    return value


def _archive(value: object) -> bool:
    if not isinstance(value, bool):
        raise RequestRefused(422, "archive must be true or false.")
    return value


class Capture:
    """A capture that is running or has finished.

    `ended` is set once sampling is to end, `finished` once the capture is over. `stopped` is true if somebody
    ended it early, `partial` if what was sampled until then is still wanted.
    """

    def __init__(self, *, partial: bool = False) -> None:
        self.ended = Event()
        self.finished = Event()
        self.stopped = False
        self.partial = partial

    def stop(self, *, partial: bool = False) -> None:
        """End the capture early."""
        self.stopped, self.partial = True, self.partial or partial
        self.ended.set()


class CaptureLock:
    """Let one capture run at a time. Safe to use from several threads. `running` is the current capture."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: Capture | None = None

    def start(self, *, partial: bool = False) -> Capture | None:
        """Start a capture; return None if another one is running."""
        with self._lock:
            if self.running is not None:
                return None
            self.running = Capture(partial=partial)
            return self.running

    def finish(self, capture: Capture) -> None:
        """End a capture, so that another may start."""
        with self._lock:
            self.running = None
        capture.ended.set()
        capture.finished.set()

    @contextmanager
    def wait_and_start(self, until: Event) -> Iterator[Capture]:
        """Start a capture once no other is running, and stop it when `until` is set.

        Raises Stopped if `until` is set before the capture starts.
        """
        while (capture := self.start(partial=True)) is None:
            if until.wait(_POLL_SECONDS):
                raise Stopped
        threading.Thread(
            target=_stop_when_set, args=(until, capture), name="pgo-agent-until", daemon=True
        ).start()
        try:
            yield capture
        finally:
            self.finish(capture)


class ScheduledSampler:
    """Take the scheduled profiles, each when no other capture is running.

    It samples with the first of the `candidates` that works, and chooses again after that backend has failed.
    bcc, which is `kept`, doesn't wait for others, and lets requests take profiles meanwhile. `programs` gets
    what was sampled.
    """

    def __init__(
        self,
        lock: CaptureLock,
        candidates: Collection[Backend],
        names: tuple[str, ...],
        frequency: int,
        kept: KeptBcc,
        *,
        programs: Programs,
    ) -> None:
        self._lock, self._candidates = lock, candidates
        self._names, self._frequency = names, frequency
        self._kept, self._programs = kept, programs
        self._backend: Backend | None = None

    def sample(self, duration: float, until: Event) -> bytes:
        """Return a gzipped pprof profile, as `pgo_agent.Sampler` documents.

        Raises the errors of ProcessSampler, NoBackend, and Stopped if it is to end before it has a sample.
        """
        backend, self._backend = self._backend or self._choose(until), None
        if backend.is_shared:
            profile = self._take(backend, duration, until)
        else:
            with self._lock.wait_and_start(until) as capture:
                profile = self._take(backend, duration, capture.ended)
        self._backend = backend
        return profile

    def _choose(self, until: Event) -> Backend:
        with self._lock.wait_and_start(until) as capture:
            return self._kept.keeping(choose(self._candidates, capture.ended))

    def _take(self, backend: Backend, duration: float, ended: Event) -> bytes:
        try:
            recording = ProcessSampler(backend, self._names, self._frequency).record(duration, ended)
        except AgentError as error:
            if ended.is_set():
                raise Stopped from error
            raise
        self._programs.add(recording.stacks)
        return native_profile(recording)


def _stop_when_set(until: Event, capture: Capture) -> None:
    while not capture.ended.is_set():
        if until.wait(_POLL_SECONDS):
            capture.stop()
