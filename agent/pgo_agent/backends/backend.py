"""Define what every profiler of native processes implements: `Backend`, with its `SamplingRequest`."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Protocol

from pgo_agent.logs import EventLogger
from pgo_agent.native import Recording

_log = EventLogger(__name__)
LONGEST_NAME = 15  # bytes that the kernel keeps of a process name
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """The names of the processes to sample, and the samples per second of CPU time of each thread.

    The name of a process is the kernel's name for its main thread: the name of its executable, cut to 15
    bytes. Raises ValueError if no process can have one of the names, or `frequency` isn't 1 to 1000.
    """

    names: tuple[str, ...]
    frequency: int

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("no executable is named")
        for name in self.names:
            if (
                not name.isprintable()
                or not name
                or len(name.encode()) > LONGEST_NAME
                or '"' in name
                or "\\" in name
            ):
                raise ValueError(f"not the name of a process, of 1 to {LONGEST_NAME} bytes: {name!r}")
        if not 1 <= self.frequency <= 1000:
            raise ValueError("the frequency must be 1 to 1000 a second")

    @property
    def period(self) -> int:
        """Return the CPU time between two samples of a thread (ns)."""
        return NS // self.frequency


class Backend(Protocol):
    """A profiler program, which may or may not work on this machine."""

    @property
    def name(self) -> str:
        """Return the profiler's name, as `--profiler` takes it."""

    @property
    def is_shared(self) -> bool:
        """Return whether captures at once share what runs for them, and so need not wait for each other."""

    def record(self, request: SamplingRequest, duration: float, until: Event) -> Recording:
        """Sample for `duration` seconds, or until `until` is set, and return the recording.

        Blocks for that time, plus some seconds to start and to end. When it returns, the profiler's process
        has ended. Raises ToolFailed or NotReadable.
        """

    def obstacles(self) -> list[str]:
        """Return what keeps the profiler from working here, each with its fix, without trying to run it."""


def tell_lost(count: int) -> None:
    """Log how many samples the kernel had no room for, if any."""
    if count:
        _log.warning("samples lost", count=count)
