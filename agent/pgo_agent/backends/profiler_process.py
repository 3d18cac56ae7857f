"""Run a profiler as a child process for a given time, and never longer than the agent itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import IO, Self

from pgo_agent.errors import ToolFailed
from pgo_agent.logs import EventLogger

_START_SECONDS = 60.0  # bcc compiles before it samples
_END_SECONDS = 60.0
_RESEND_SECONDS = 1.0
_POLL_SECONDS = 0.1
_MAX_MESSAGE_BYTES = 2000
_READ_BYTES = 1 << 16  # at a time: as much as a pipe holds
_log = EventLogger(__name__)


class ProfilerProcess:
    """A profiler that prints a line when sampling has begun, and on SIGINT prints its results and ends.

    `on_line` is called with each line after the first, on a thread of its own. `tool` is the profiler's name
    in errors. The process has the `inherited` file descriptors. The kernel kills it if the agent dies.
    """

    def __init__(
        self,
        tool: str,
        command: Sequence[str | Path],
        on_line: Callable[[bytes], None],
        environment: Mapping[str, str] | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self._tool, self._on_line, self._inherited = tool, on_line, inherited
        self._command = ("setpriv", "--pdeathsig", "KILL", "--", *command)
        self._environment = {**os.environ, **(environment or {})}
        self._started = Event()

    def __enter__(self) -> Self:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell; the program is the operator's choice
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=_READ_BYTES,
                env=self._environment,
                pass_fds=self._inherited,
                start_new_session=True,  # Ctrl-C goes to the agent only, which then stops the profiler
            )
        except FileNotFoundError:
            self._stderr.close()
            raise ToolFailed("setpriv", "it is not installed (Debian's package: util-linux)") from None
        self._listener = threading.Thread(target=self._listen, name=f"pgo-agent-{self._tool}", daemon=True)
        self._listener.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._listener.join()
        with suppress(BrokenPipeError):  # the process ended before it read all of its input
            self._process.communicate()
        self._stderr.close()

    def run(
        self,
        duration: float,
        until: Event,
        *,
        start: bytes = b"",
        before_end: Callable[[], object] = lambda: None,
    ) -> tuple[int, int]:
        """Sample for `duration` seconds, or until `until` is set; return the start and the duration (ns).

        Writes `start` to the profiler first. Calls `before_end` last, while the profiler still samples.
        Returns when the process has ended and `on_line` has had all of its lines. Raises ToolFailed.
        """
        self.begin(until, start)
        timed = wait_while_sampling(self._tool, duration, until, self.check_alive, before_end)
        self.end()
        return timed

    def begin(self, until: Event, start: bytes = b"") -> None:
        """Write `start`, and wait until sampling has begun or `until` is set. Raises ToolFailed."""
        self.send(start)
        deadline = time.monotonic() + _START_SECONDS
        while not (self._started.wait(_POLL_SECONDS) or until.is_set()):
            self.check_alive()
            if time.monotonic() > deadline:
                raise ToolFailed(self._tool, f"it did not start within {_START_SECONDS:.0f} s")

    def send(self, line: bytes) -> None:
        """Write to the profiler's input. If the process has ended, `check_alive` raises the reason."""
        assert self._process.stdin  # noqa: S101 - opened as a pipe
        with suppress(BrokenPipeError, ValueError):  # it is closed by now
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def end(self) -> None:
        """Stop the profiler, and return when `on_line` has had all of its lines. Raises ToolFailed."""
        status = self._interrupt()
        self._listener.join()
        if status not in {0, -signal.SIGINT}:
            raise self._failed()

    def _listen(self) -> None:
        assert self._process.stdout  # noqa: S101 - opened as a pipe
        for line in self._process.stdout:
            if self._started.is_set():
                self._on_line(line)
            self._started.set()

    def _interrupt(self) -> int:
        """Send SIGINT until the process ends; return its exit status."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            self._process.send_signal(signal.SIGINT)
            # bpftrace misses a signal that comes while it isn't waiting for events, so SIGINT is sent again.
            # While it prints its results it doesn't catch SIGINT, which would kill it, so that is checked.
            while time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    return self._process.wait(_RESEND_SECONDS)
                if self._catches_interrupts():
                    break
        raise ToolFailed(self._tool, f"it did not end within {_END_SECONDS:.0f} s")

    def _catches_interrupts(self) -> bool:
        caught = re.search(
            r"^SigCgt:\s*(\w+)", Path(f"/proc/{self._process.pid}/status").read_text(), re.MULTILINE
        )
        return bool(caught and int(caught[1], 16) >> (signal.SIGINT - 1) & 1)

    def check_alive(self) -> None:
        """Raise ToolFailed if the process has ended."""
        if self._process.poll() is not None:
            raise self._failed()

    def _failed(self) -> ToolFailed:
        self._stderr.seek(0)
        message = self._stderr.read().decode(errors="replace").strip()[-_MAX_MESSAGE_BYTES:]
        return ToolFailed(self._tool, message or f"it ended with status {self._process.returncode}")


def wait_while_sampling(
    tool: str,
    duration: float,
    until: Event,
    check: Callable[[], None],
    before_end: Callable[[], object],
) -> tuple[int, int]:
    """Wait as `ProfilerProcess.run` does, and `check` meanwhile; return the start and the duration (ns)."""
    if not until.is_set():
        _log.info("sampling", profiler=tool, seconds=f"{duration:g}")
    began, start_clock = time.time_ns(), time.monotonic_ns()
    deadline = time.monotonic() + duration
    while (left := deadline - time.monotonic()) > 0 and not until.wait(min(left, _POLL_SECONDS)):
        check()
    before_end()
    return began, time.monotonic_ns() - start_clock
