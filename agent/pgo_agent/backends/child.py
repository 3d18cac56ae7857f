"""A profiler as a child process: it runs as long as it is to, and no longer than the agent."""

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

_START_SECONDS = 60.0  # bcc compiles before it samples
_END_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_SAID_BYTES = 2000


class Child:
    """A profiler that prints a line when it samples, and on SIGINT prints the rest and ends.

    `hear` gets its lines after the first, on a thread of its own. `tool` is what errors call it. The kernel
    kills it if the agent dies.
    """

    def __init__(
        self,
        tool: str,
        command: Sequence[str | Path],
        hear: Callable[[bytes], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._tool, self._hear = tool, hear
        self._command = ("setpriv", "--pdeathsig", "KILL", "--", *command)
        self._environment = {**os.environ, **(environment or {})}
        self._started = Event()

    def __enter__(self) -> Self:
        self._said: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell; the operator says which programs there are
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=self._environment,
                start_new_session=True,  # a Ctrl-C is for the agent, which then ends it
            )
        except FileNotFoundError:
            self._said.close()
            raise ToolFailed("setpriv", "it is not installed (Debian's package: util-linux)") from None
        self._listener = threading.Thread(target=self._listen, name=f"pgo-agent-{self._tool}", daemon=True)
        self._listener.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._listener.join()
        with suppress(BrokenPipeError):  # what was to be written to it before it ended
            self._process.communicate()
        self._said.close()

    def run(
        self,
        duration: float,
        until: Event,
        *,
        start: bytes = b"",
        before_end: Callable[[], object] = lambda: None,
    ) -> tuple[int, int]:
        """Lets it sample for `duration` s, or until `until` is set; when that began and how long it was (ns).

        `start` is written to it first, `before_end` called last, while it still samples. Returns when it has
        ended and all it printed is heard. Raises ToolFailed.
        """
        assert self._process.stdin  # noqa: S101 - opened as a pipe
        with suppress(BrokenPipeError):  # it has ended, and says why
            self._process.stdin.write(start)
            self._process.stdin.flush()
        deadline = time.monotonic() + _START_SECONDS
        while not (self._started.wait(_LOOK_SECONDS) or until.is_set()):
            self._check_alive()
            if time.monotonic() > deadline:
                raise ToolFailed(self._tool, f"it did not start within {_START_SECONDS:.0f} s")
        began, start_clock = time.time_ns(), time.monotonic_ns()
        deadline = time.monotonic() + duration
        while (left := deadline - time.monotonic()) > 0 and not until.wait(min(left, _LOOK_SECONDS)):
            self._check_alive()
        before_end()
        lasted = time.monotonic_ns() - start_clock
        status = self._interrupt()
        self._listener.join()
        if status not in {0, -signal.SIGINT}:
            raise self._failed()
        return began, lasted

    def _listen(self) -> None:
        assert self._process.stdout  # noqa: S101 - opened as a pipe
        for line in self._process.stdout:
            if self._started.is_set():
                self._hear(line)
            self._started.set()

    def _interrupt(self) -> int:
        """Ends it; its status."""
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            self._process.send_signal(signal.SIGINT)
            # bpftrace doesn't notice a signal that comes while it isn't waiting for events. Nor does it catch
            # one while it prints what it has, which takes long on a busy machine: it would die of that.
            while time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    return self._process.wait(_AGAIN_SECONDS)
                if self._catches_interrupts():
                    break
        raise ToolFailed(self._tool, f"it did not end within {_END_SECONDS:.0f} s")

    def _catches_interrupts(self) -> bool:
        caught = re.search(
            r"^SigCgt:\s*(\w+)", Path(f"/proc/{self._process.pid}/status").read_text(), re.MULTILINE
        )
        return bool(caught and int(caught[1], 16) >> (signal.SIGINT - 1) & 1)

    def _check_alive(self) -> None:
        if self._process.poll() is not None:
            raise self._failed()

    def _failed(self) -> ToolFailed:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()[-_SAID_BYTES:]
        return ToolFailed(self._tool, said or f"it ended with status {self._process.returncode}")
