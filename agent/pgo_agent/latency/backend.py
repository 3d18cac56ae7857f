"""Define what runs trackers in the kernel, and choose it: bcc for everything, bpftrace where bcc is missing.

A `TrackerBackend` opens a `Feed` for a tracker: how its child process is started and told something, and what
the lines that it prints say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pgo_agent.latency.bcc_feed import BccTrackers
from pgo_agent.latency.bpftrace_feed import BpftraceTrackers
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.trackers import Tracker


class Feed(Protocol):
    """One tracker's child process. A message is a kind and what is told, as latency_program.py prints it."""

    @property
    def command(self) -> Sequence[str | Path]:
        """Return the program and its arguments. It prints a line once it tracks, and ends at SIGINT."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Return what its environment has besides the agent's."""

    @property
    def setup(self) -> bytes:
        """Return what it reads first."""

    def messages(self, line: bytes) -> Iterable[tuple[str, Any]]:
        """Return what a line says, of those after the first one."""

    def last_messages(self) -> Iterable[tuple[str, Any]]:
        """Return what is left to say when it has ended."""

    def change(self, settings: TrackerSettings) -> bytes:
        """Return what tells it other settings. Raises NotSupported."""

    def ask_in_flight(self) -> bytes:
        """Return what asks it for what is in flight. Raises NotSupported."""

    def ask_tick(self) -> bytes:
        """Return what asks it for a tick now; nothing if it can't be asked."""


class TrackerBackend(Protocol):
    """A program that runs trackers in the kernel."""

    @property
    def name(self) -> str:
        """Return its name, as `--backend` takes it."""

    def obstacles(self) -> list[str]:
        """Return what keeps it from working here, each with its fix, without trying to run it."""

    def how_followed(self) -> str:
        """Return how the callers in stacks were found, for people."""

    def feed(self, tracker: Tracker, settings: TrackerSettings) -> Feed:
        """Return the feed of a tracker that isn't started yet. Raises NotSupported."""


def tracker_backends() -> dict[str, TrackerBackend]:
    """Return all backends by name, in order of preference."""
    return {backend.name: backend for backend in (BccTrackers(), BpftraceTrackers())}


def choose_tracker_backend(name: str | None = None) -> TrackerBackend:
    """Return the backend with a name, or the first without an obstacle here; if all have one, the first."""
    known = tracker_backends()
    if name is not None:
        return known[name]
    first, *others = known.values()
    return next((backend for backend in (first, *others) if not backend.obstacles()), first)
