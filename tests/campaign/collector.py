"""A collector in a process group of its own, which a campaign kills, stops and measures."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.processes import stat_of, state_of
from tests.server import Process, Server, command_in, descendants

_LONGEST_LINE: Final = 400


class Usage(NamedTuple):
    """The resources of all processes of a collector: memory in MiB, and numbers of descriptors and threads.

    `own` is the memory that would be free without the processes; `resident` counts shared memory for each
    process.
    """

    processes: int
    own: float
    resident: float
    descriptors: int
    threads: int


class Collector(Server):
    """`pgo-collector serve` as the leader of a session; `kill` ends all its processes, stopped ones too."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(home, environment)
        self.spawned: list[int] = []  # the ids of the processes that were started

    def kill(self) -> None:
        if self._process is not None:
            self.signal_group(signal.SIGKILL)
        super().kill()

    def signal(self, number: int) -> None:
        """Send a signal to the server process only."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal to all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def is_running(self) -> bool:
        """Return whether the server process exists; its id isn't reused until `kill` or `stop` reaps it."""
        return self._process is not None and state_of(self.process.pid) not in {"Z", ""}

    def members(self) -> list[int]:
        """Return the ids of all live processes of the group, whoever their parent is."""
        return [pid for pid, group in _groups() if group == self.process.pid and state_of(pid) != "Z"]

    def fork_servers(self) -> list[int]:
        """Return the ids of the processes that workers are forked from."""
        return [pid for pid in descendants(self.process.pid) if self._forks(pid)]

    def workers(self) -> list[int]:
        """Return the ids of its worker processes."""
        return [pid for helper in self.fork_servers() for pid in descendants(helper)]

    def usage(self) -> Usage:
        """Return the current resources of its processes, from /proc."""
        total: Counter[str] = Counter()
        pids = self.members()
        for pid in pids:
            with suppress(FileNotFoundError, ProcessLookupError):
                total.update(_memory(pid))
                total["fds"] += len([*Path(f"/proc/{pid}/fd").iterdir()])
                total["threads"] += len([*Path(f"/proc/{pid}/task").iterdir()])
        own, resident = total["Pss_Anon:"] / 1024, total["Rss:"] / 1024
        return Usage(len(pids), own, resident, total["fds"], total["threads"])

    def own_megabytes(self, pid: int) -> float:
        """Return the memory in MiB that would be free without one process; 0 if the process doesn't exist."""
        with suppress(FileNotFoundError, ProcessLookupError):
            return _memory(pid)["Pss_Anon:"] / 1024
        return 0

    def tail(self, lines: int = 12) -> list[str]:
        """Return the last lines of the log, without those of requests that went well."""
        told = [line for line in list(self.log) if not _is_routine(line)]
        return [
            str({key: value for key, value in line.items() if key != "timestamp"})[:_LONGEST_LINE]
            for line in told[-lines:]
        ]

    def wait_until_left(self, seconds: float) -> list[int]:
        """Wait until all its processes have ended; return those that still exist after `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := self.members()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _forks(self, pid: int) -> bool:
        parent = _parent(pid) == self.process.pid
        with suppress(FileNotFoundError, ProcessLookupError):
            return parent and Path(f"/proc/{pid}/comm").read_text() == "pgo-forks\n"
        return False

    def _spawn(self, *arguments: str) -> Process:
        process = subprocess.Popen(
            [*command_in(self.environment), *arguments],
            stderr=subprocess.PIPE,
            env=self.environment,
            start_new_session=True,
        )
        self.spawned.append(process.pid)
        return process


_ROUTINE = {"merge made", "upkeep done", "profiles combined", "days rolled up"}


def _is_routine(line: dict[str, object]) -> bool:
    status = line.get("status", 0)
    went_well = line.get("event") == "request" and isinstance(status, int) and status < 500
    return went_well or line.get("event") in _ROUTINE


def _groups() -> Iterator[tuple[int, int]]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield int(path.name), int(stat_of(int(path.name))[2])


def _parent(pid: int) -> int:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(stat_of(pid)[1])
    return 0


def _memory(pid: int) -> dict[str, int]:
    """Return the values of smaps_rollup, in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(size) for name, size, *_ in map(str.split, lines)}
