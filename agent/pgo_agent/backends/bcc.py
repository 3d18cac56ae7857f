"""Sample with bcc: run bcc_program.py with the Python that has bcc, and read what it prints.

It compiles for a second or more before it samples, so `KeptBcc` keeps it for the captures that follow.
"""

from __future__ import annotations

import base64
import itertools
import json
import platform
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Self

from pgo_agent.backends.backend import Backend, SamplingRequest, tell_lost
from pgo_agent.backends.bcc_python import FRAME_BYTES, MOST_FRAMES
from pgo_agent.backends.profiler_process import ProfilerProcess, wait_while_sampling
from pgo_agent.backends.python_processes import PythonProcesses
from pgo_agent.backends.rights import missing_rights
from pgo_agent.backends.whole_stacks import WholeStack, how_followed, unwinding, whole_stack
from pgo_agent.errors import AgentError, ToolFailed
from pgo_agent.native import BY_CALL_FRAMES, FrameLayout, MemoryMaps, Recording, Stack

_PROGRAM = Path(__file__).with_name("bcc_program.py")
_IDLE_SECONDS = 60.0  # it takes 100 MB, and compiling takes a second or more
_ANSWER_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Bcc:
    """The bcc backend; `program` is a Python that has the module bcc, by default the distribution's.

    With `kept`, its process lasts, and captures of the same names share it.
    """

    program: str = "/usr/bin/python3"
    name: str = "bcc"
    kept: KeptBcc | None = field(default=None, repr=False, compare=False)

    @property
    def is_shared(self) -> bool:
        """Return whether captures at once share a profiler, as `Backend` documents."""
        return self.kept is not None

    def record(self, request: SamplingRequest, duration: float, until: Event) -> Recording:
        """Sample as `Backend` documents."""
        kept = self.kept or KeptBcc()
        try:
            with kept.sampler(self.program, request.names, until) as sampler:
                return sampler.record(request, duration, until)
        finally:
            if not self.kept:
                kept.close()

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `Backend` documents."""
        found = []
        if not _has_bcc(self.program):
            found.append(f"{self.program} has no module bcc: apt-get install python3-bpfcc")
        found += missing_rights("CAP_BPF", "CAP_PERFMON")
        release = platform.release()
        missing = [
            str(folder)
            for folder in (Path(f"/lib/modules/{release}/{name}") for name in ("build", "source"))
            if not folder.is_dir()
        ]
        if missing:
            found.append(
                f"the headers of kernel {release} are missing: apt-get install linux-headers-{release}, "
                f"or link {' and '.join(missing)} to the headers of a similar kernel"
            )
        return found


class KeptBcc:
    """The processes of bcc that are kept between captures, until each has been idle for a minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samplers: dict[tuple[str, tuple[str, ...]], _Sampler] = {}

    def keeping(self, backend: Backend) -> Backend:
        """Return a backend whose process is kept here, if it is bcc."""
        return replace(backend, kept=self) if isinstance(backend, Bcc) else backend

    @contextmanager
    def sampler(self, program: str, names: tuple[str, ...], until: Event) -> Iterator[_Sampler]:
        """Lend the process for these names; start one if there is none.

        If `until` is set afterwards, and no other capture uses the process, it has ended when this returns.
        """
        with self._lock:
            sampler = self._samplers.get((program, names))
            if sampler is None or not sampler.enter():
                sampler = self._samplers[program, names] = _Sampler(program, names)
                sampler.enter()
        try:
            yield sampler
        finally:
            sampler.leave(is_stopped=until.is_set())

    def close(self) -> None:
        """End the processes."""
        for sampler in self._samplers.values():
            sampler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Sampler:
    """A process of bcc_program.py, for any number of captures, also at once.

    `enter` before a capture, and `leave` after it: when nobody has for a while, the process ends.
    """

    def __init__(self, program: str, names: tuple[str, ...]) -> None:
        self._captures: dict[int, _Capture] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._users, self._left = 0, time.monotonic()
        self._started, self._stopping, self._over = Event(), Event(), Event()
        self._failure: AgentError | None = None
        self._process = ProfilerProcess("bcc", (program, "-I", _PROGRAM, *names), self._add_line)
        # The kernel kills the child process with the thread that started it.
        self._thread = threading.Thread(target=self._run, name="pgo-agent-bcc-process", daemon=True)
        self._thread.start()

    def enter(self) -> bool:
        """Keep the process from ending by itself; return False if it ends already."""
        with self._lock:
            if self._stopping.is_set() or self._over.is_set():
                return False
            self._users += 1
            return True

    def leave(self, *, is_stopped: bool) -> None:
        """Let the process end by itself; if the capture was stopped and nobody else uses it, end it now."""
        with self._lock:
            self._users, self._left = self._users - 1, time.monotonic()
            if is_stopped and not self._users:
                self._stopping.set()
        if self._stopping.is_set():
            self._thread.join()

    def close(self) -> None:
        """End the process, and return when it has ended."""
        self._stopping.set()
        self._thread.join()

    def record(self, request: SamplingRequest, duration: float, until: Event) -> Recording:
        """Sample as `Backend` documents."""
        self._wait_for(self._started, until)
        if not self._started.is_set():
            return Recording.from_samples(time.time_ns(), 0, request.period, ())
        capture = _Capture(lambda pid, layout: self._tell("python", pid, layout))
        capture.pythons.look_for(request.names)
        with self._lock:
            number = next(self._numbers)
            self._captures[number] = capture
        try:
            self._tell("begin", number, request.frequency)
            self._wait_for(capture.begun, Event())
            read_again = capture.maps.read_again
            began, lasted = wait_while_sampling("bcc", duration, until, self._check, read_again)
            self._tell("end", number)
            self._wait_for(capture.ended, Event())
        finally:
            with self._lock:
                del self._captures[number]
        samples = ((stack, count, count * request.period) for stack, count in capture.stacks())
        recording = Recording.from_samples(began, lasted, request.period, samples)
        followed = how_followed()
        cut_short = capture.cut_short if followed == BY_CALL_FRAMES else None
        return replace(
            recording,
            lost_stacks=capture.lost_stacks,
            followed=followed,
            cut_short=cut_short,
            python=capture.pythons.comment(),
        )

    def _run(self) -> None:
        try:
            with unwinding(), self._process as process:
                process.begin(self._stopping)
                self._started.set()
                while not self._stopping.wait(_POLL_SECONDS):
                    process.check_alive()
                    self._stop_if_idle()
                process.end()
        except AgentError as error:
            self._failure = error
        finally:
            self._over.set()

    def _stop_if_idle(self) -> None:
        with self._lock:
            if not self._users and time.monotonic() - self._left > _IDLE_SECONDS:
                self._stopping.set()

    def _wait_for(self, event: Event, until: Event) -> None:
        """Return when the event is set, or `until` is. Raises ToolFailed."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not (event.wait(_POLL_SECONDS) or until.is_set()):
            self._check()
            if time.monotonic() > deadline:
                raise ToolFailed("bcc", f"it did not answer within {_ANSWER_SECONDS:.0f} s")

    def _check(self) -> None:
        """Raise ToolFailed if the process has ended."""
        if self._over.is_set():
            raise self._failure or ToolFailed("bcc", "it was stopped")

    def _tell(self, *command: object) -> None:
        with self._lock:
            self._process.send(json.dumps(command).encode() + b"\n")

    def _add_line(self, line: bytes) -> None:
        kind, number, *fields = json.loads(line)
        with self._lock:
            capture = self._captures.get(number)
        if capture:
            capture.add(kind, fields)


class _Sampled(NamedTuple):
    """A stack of a thread; addresses are leaf first."""

    pid: int
    thread: int
    comm: str
    kernel: tuple[int, ...]
    user: WholeStack


class _Capture:
    """Reads what bcc_program.py prints of one capture."""

    def __init__(self, read_frames: Callable[[int, FrameLayout], None]) -> None:
        self.maps = MemoryMaps()
        self.pythons = PythonProcesses(self.maps, read_frames)
        self.begun, self.ended = Event(), Event()
        self.lost_stacks = self.cut_short = 0
        self._counts: Counter[_Sampled] = Counter()

    def add(self, kind: str, fields: list[Any]) -> None:
        match kind:
            case "begun":
                self.begun.set()
            case "process":
                self.maps.read(*fields)
            case "stack":
                self._add_stack(*fields)
            case "lost":
                tell_lost(fields[0])
            case _:
                self.ended.set()

    def _add_stack(  # noqa: PLR0917 - the fields of a line
        self,
        pid: int,
        thread: int,
        comm: str,
        samples: int,
        kernel: list[int],
        user: list[int],
        copy: str,
        python: str,
    ) -> None:
        chain = base64.b64decode(python)
        whole = whole_stack(pid, self.maps, user, base64.b64decode(copy), self.pythons.segments(pid, chain))
        if whole.has_python and len(chain) == MOST_FRAMES * FRAME_BYTES:  # there were more
            whole = whole._replace(is_whole=False)
        self.pythons.count(pid, samples, has_python=whole.has_python)
        self._counts[_Sampled(pid, thread, comm, tuple(kernel), whole)] += samples

    def stacks(self) -> Iterator[tuple[Stack, int]]:
        """Yield each stack with its number of samples."""
        for seen, samples in self._counts.items():
            frames = self.maps.frames(seen.pid, seen.kernel, seen.user.frames)
            if self.maps.is_lost(seen.pid, seen.kernel, seen.user.frames):
                self.lost_stacks += samples
            elif not seen.user.is_whole:
                self.cut_short += samples
            yield Stack(seen.comm, seen.pid, seen.thread, frames), samples


def _has_bcc(python: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the program is the operator's choice
            [python, "-I", "-c", "import importlib.util as u; raise SystemExit(u.find_spec('bcc') is None)"],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
