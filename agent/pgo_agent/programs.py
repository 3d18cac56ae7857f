"""Send a collector the programs that were profiled, so that it can name the functions of other profiles, too.

They are sent without their code, which names don't need, and only those that the collector doesn't have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

from pgo_agent.collector import Collector
from pgo_agent.errors import AgentError, NotReadable, SubmitRefused, ToolFailed
from pgo_agent.logs import EventLogger
from pgo_agent.native import Elf, Mapping, Stack, candidate_paths, has_symbol_table, run_tool

_log = EventLogger(__name__)
# What the collector says of one program. Any other refusal is of all, such as that of the key.
_OF_ONE = frozenset({400, 409, 413, 422})
SENT, THERE = "sent", "there"
_DEBUG_FILES = "/usr/lib/debug/.build-id"


class SentProgram(NamedTuple):
    """A program, its build id, and what became of it: `sent`, `there`, or why it wasn't sent."""

    file: str
    build_id: str
    outcome: str


class ProgramSender:
    """Sends programs to a collector, each build once."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._known: set[str] = set()

    def send(self, stacks: Iterable[Stack]) -> list[SentProgram]:
        """Send the programs and libraries of these stacks, and say what became of each.

        Raises CollectorUnavailable, KeyRefused, and SubmitRefused if the collector takes no program.
        """
        sent = []
        for mapping, pids in _profiled(stacks).items():
            if mapping.build_id not in self._known:
                outcome = self._send(mapping, pids)
                self._known.add(mapping.build_id)
                sent.append(SentProgram(mapping.file, mapping.build_id, outcome))
        return sent

    def _send(self, mapping: Mapping, pids: Iterable[int]) -> str:
        if self._collector.has_binary(mapping.build_id):
            return THERE
        path = next(_files(mapping, pids), None)
        if path is None:
            return "the file is gone, or is of another build"
        try:
            with TemporaryDirectory(prefix="pgo-agent-") as folder:
                self._collector.submit_binary(_without_code(path, Path(folder) / "program"))
        except SubmitRefused as error:
            if error.status not in _OF_ONE:
                raise
            return error.detail
        except OSError as error:
            return error.strerror or str(error)
        return SENT


class Programs(Protocol):
    """Gets the stacks of each profile that `pgo-agent serve` takes, from any thread."""

    def add(self, stacks: Iterable[Stack]) -> None:
        """Send what was profiled."""


class NoPrograms:
    """Sends no program."""

    def add(self, stacks: Iterable[Stack]) -> None:
        """Do nothing."""


class BackgroundPrograms:
    """Sends programs in a thread, so that no profile waits for it. Failures are logged.

    While some are being sent, others wait for the next profile that they are in.
    """

    def __init__(self, collector: Collector) -> None:
        self._sender = ProgramSender(collector)
        self._sending = threading.Lock()

    def add(self, stacks: Iterable[Stack]) -> None:
        """Send what was profiled, and the collector lacks."""
        if self._sending.acquire(blocking=False):
            sending = threading.Thread(
                target=self._send, args=([*stacks],), name="pgo-agent-programs", daemon=True
            )
            sending.start()

    def _send(self, stacks: list[Stack]) -> None:
        try:
            for file, build_id, outcome in self._sender.send(stacks):
                if outcome == SENT:
                    _log.info("program sent", file=file, build_id=build_id)
                elif outcome != THERE:
                    _log.warning("program not sent", file=file, reason=outcome)
        except (AgentError, OSError) as error:
            _log.warning("programs not sent", reason=error)
        finally:
            self._sending.release()


def _profiled(stacks: Iterable[Stack]) -> dict[Mapping, set[int]]:
    """Return a mapping of each build in these stacks, and the processes that have it."""
    builds: dict[str, tuple[Mapping, set[int]]] = {}
    for stack in stacks:
        for frame in stack.frames:
            mapping = frame.mapping
            if mapping and mapping.build_id and mapping.file.startswith("/"):
                builds.setdefault(mapping.build_id, (mapping, set()))[1].add(stack.pid)
    return dict(builds.values())


def _files(mapping: Mapping, pids: Iterable[int]) -> Iterator[Path]:
    """Yield where a program is, with its debug information if that is installed apart."""
    build_id = mapping.build_id
    for file in (f"{_DEBUG_FILES}/{build_id[:2]}/{build_id[2:]}.debug", mapping.file):
        for path in candidate_paths(file, pids):
            with suppress(NotReadable):
                if Elf.read(path).build_id == build_id:
                    yield path


def _without_code(path: Path, copy: Path) -> Path:
    """Return a copy of a program without its code, or the program itself if it has no other names to keep."""
    with suppress(ToolFailed, NotReadable):
        if has_symbol_table(path):
            run_tool("llvm-objcopy", "--only-keep-debug", path, copy)
            return copy
    return path
