"""Run `pgo-agent serve` as a process, and watch it from outside."""

from __future__ import annotations

import gzip
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
from pprof_proto.profile_pb2 import Profile

from tests.agent.forked import RunningAgent
from tests.agent.sampling import has_events, is_bcc, reads_call_frames
from tests.cpu_meter import children_of
from tests.forked import NO_CONSTANTS, Constants

AGENT = Path(sys.executable).with_name("pgo-agent")
_PATIENCE_SECONDS = 120.0


class Serving:
    """Run the command with `arguments` on a free loopback port; send `headers` with each request."""

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        headers: dict[str, str] | None = None,
        constants: Constants = NO_CONSTANTS,
    ) -> None:
        self._log = folder / "agent.log"
        self._constants = constants
        self._arguments = arguments
        self._headers = headers

    def __enter__(self) -> Self:
        with self._log.open("w+b") as log:
            command = ["serve", "--bind", "127.0.0.1:0", *self._arguments]
            self.process = RunningAgent(command, constants=self._constants, stderr=log)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (listening := re.search(r"listening: url=(\S+)", self.log)):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)
        self.url = listening[1]
        patience = _PATIENCE_SECONDS
        self.client = httpx.Client(base_url=self.url, headers=self._headers, timeout=patience, verify=False)  # noqa: S501 - plain HTTP
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def post(self, profiler: str | dict[str, Any], seconds: int = 1, **rest: Any) -> httpx.Response:
        """Ask for a profile; `profiler` is a profiler's name in requests, or any other JSON value."""
        said = {profiler: None} if isinstance(profiler, str) else profiler
        return self.client.post("/profile/cpu", json={"profiler": said, "timeout_seconds": seconds, **rest})

    def wait_until_busy(self) -> None:
        """Return when a profile is being taken and its profiler runs."""
        self.wait_until(lambda: self.is_busy() and self.children())

    def wait_until_idle(self) -> None:
        """Return when no profile is being taken."""
        self.wait_until(lambda: not self.is_busy())

    def wait_until_logged(self, message: str) -> None:
        """Return when a message is in the log."""
        self.wait_until(lambda: message in self.log)

    def is_busy(self) -> bool:
        """Return True if GET says that a profile is being taken."""
        response = self.client.get("/profile/cpu")
        if response.status_code == 204:
            assert response.content == b""
            return False
        assert (response.status_code, response.json()) == (200, "Profiling is currently in progress.")
        return True

    def children(self) -> list[int]:
        """Return the processes that the agent has started, without a kept bcc that samples nothing.

        As long as bcc is kept, so is what reads call frame information.
        """
        every = self.every_child()
        kept = {pid for pid in every if is_bcc(pid) and not has_events(pid)}
        return [pid for pid in every if pid not in kept and not (kept and reads_call_frames(pid))]

    def every_child(self) -> list[int]:
        """Return the processes that the agent has started."""
        return children_of(self.process.pid)

    def stop(self, ending: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal that ends it; return the exit status."""
        self.process.send_signal(ending)
        return self.process.wait(_PATIENCE_SECONDS)

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Return when the condition holds."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)


class Posting(threading.Thread):
    """A POST that runs in the background."""

    def __init__(self, agent: Serving, *arguments: Any, **rest: Any) -> None:
        super().__init__()
        self._agent, self._arguments, self._rest = agent, arguments, rest
        self.start()
        agent.wait_until_busy()

    def run(self) -> None:
        self._answered = self._agent.post(*self._arguments, **self._rest)

    def response(self) -> httpx.Response:
        """Return the answer."""
        self.join(_PATIENCE_SECONDS)
        assert not self.is_alive()
        return self._answered


def parsed(content: bytes) -> Profile:
    """Parse a profile, gzipped or bare."""
    bare = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    return Profile.FromString(bare)
