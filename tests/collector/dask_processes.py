"""A Dask cluster of real processes, started with the collector's own commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.server import COMMAND, descendants

_PATIENCE_SECONDS = 120.0


class DaskProcess:
    """A process and all that it starts; `lines` is its output so far."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [COMMAND, "dask", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the process hasn't ended."""
        return self._process.poll() is None

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait for a line with this pattern, and return the match."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            ended = not self._reader.is_alive()
            for line in [*self.lines]:
                if found := re.search(pattern, line):
                    return found
            assert not ended, f"it ended: {self.lines}"
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.lines}"
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill_child(self) -> None:
        """Kill the process that reads blobs, which its parent starts again."""
        for pid in descendants(self._process.pid):
            with suppress(ProcessLookupError):
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Kill all, and wait until the process has ended."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(_PATIENCE_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)


class DaskCluster:
    """A scheduler and workers of several threads each, as a context manager; `address` is as in PGOF_BULK.

    `environment` adds to the variables of the workers.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, workers: int = 1) -> None:
        self._environment = environment
        self._count = workers
        self.scheduler = DaskProcess("scheduler", "--bind", "127.0.0.1:0", "--dashboard", "127.0.0.1:0")
        self.workers: list[DaskProcess] = []
        self.address = ""

    def __enter__(self) -> Self:
        try:
            port = self.scheduler.wait_for(r"Scheduler at: +tcp://127\.0\.0\.1:(\d+)")[1]
            self.address = f"dask://127.0.0.1:{port}"
            self.workers = [
                DaskProcess("worker", self.address, environment=self._environment) for _ in range(self._count)
            ]
            for worker in self.workers:
                worker.wait_for("Registered to")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all processes."""
        for process in (*self.workers, self.scheduler):
            process.stop()
