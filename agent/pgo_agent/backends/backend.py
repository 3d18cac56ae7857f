"""The seam to what samples processes: bcc, perf or bpftrace."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Protocol

from pgo_agent.native.recording import Recording

LONGEST_NAME = 15  # what the kernel keeps of it
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """The processes with one of these names, each thread `frequency` times in a second of CPU time.

    A process has the name that the kernel gives its main thread: that of its executable, cut to 15 bytes.
    Raises ValueError if that can't be.
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
        """The CPU time between two samples of a thread (ns)."""
        return NS // self.frequency


class Backend(Protocol):
    """A profiler that is installed on this machine, or isn't."""

    @property
    def name(self) -> str:
        """What people call it."""

    def record(self, wanted: Wanted, duration: float, until: Event) -> Recording:
        """What was sampled in `duration` seconds, or until `until` is set.

        Blocks for as long, and some seconds to start and to end. No process of its own is left when it
        returns. Raises ToolFailed, NotReadable.
        """

    def obstacles(self) -> list[str]:
        """What keeps it from working here, each with the fix, as far as that shows without a try."""
