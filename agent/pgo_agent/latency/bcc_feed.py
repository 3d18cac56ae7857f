"""Run trackers with bcc: latency_program.py compiles a tracker's C program, and prints what it counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.backends import Bcc
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.trackers import KERNEL_DEPTH, USER_DEPTH, Tracker

_PROGRAM = Path(__file__).with_name("latency_program.py")


@dataclass(frozen=True, slots=True)
class BccTrackers:
    """The bcc backend; `python` is a Python that has the module bcc."""

    python: str = Bcc().program
    name: str = "bcc"

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `TrackerBackend` documents."""
        return Bcc(self.python).obstacles()

    def feed(self, tracker: Tracker, settings: TrackerSettings) -> BccFeed:
        """Return the feed of a tracker; bcc refuses none."""
        setup = {
            "text": tracker.source(),
            "tracepoints": tracker.tracepoints,
            "own": os.getpid(),
            "depths": [KERNEL_DEPTH, USER_DEPTH],
            "interrupts": tracker.uses_interrupts,
            "is_network": tracker.name == "network",
            "settings": settings.for_program(),
        }
        return BccFeed((self.python, "-I", _PROGRAM), _line(setup))


@dataclass(frozen=True, slots=True)
class BccFeed:
    """The feed of latency_program.py, which prints messages as JSON and reads commands."""

    command: Sequence[str | Path]
    setup: bytes

    @property
    def environment(self) -> Mapping[str, str]:
        """Return nothing, as `Feed` documents."""
        return {}

    def messages(self, line: bytes) -> Iterable[tuple[str, Any]]:
        """Return the one message of a line."""
        kind, told = json.loads(line)
        return [(kind, told)]

    def last_messages(self) -> Iterable[tuple[str, Any]]:
        """Return nothing: the last tick is printed."""
        return ()

    def change(self, settings: TrackerSettings) -> bytes:
        """Return the command that changes settings."""
        return _line(["set", settings.for_program()])

    def ask_in_flight(self) -> bytes:
        """Return the command that asks for what is in flight."""
        return _line(["in_flight"])

    def ask_tick(self) -> bytes:
        """Return the command that asks for a tick."""
        return _line(["flush"])


def _line(command: object) -> bytes:
    return json.dumps(command).encode() + b"\n"
