"""Run trackers with bcc: latency_program.py compiles a tracker's C program, and prints what it counts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgo_agent.backends import Bcc, copies_program, forks_program, how_followed
from pgo_agent.latency.settings import TrackerSettings
from pgo_agent.latency.trackers import Tracker

_PROGRAM = Path(__file__).with_name("latency_program.py")
_COMMON = Path(__file__).parent / "bpf" / "common.c"
_FORK = "sched:sched_process_fork"  # which common.c needs
# Sizes that the C programs name.
_SIZES = {
    "KERNEL_DEPTH": 64,
    "USER_DEPTH": 127,
    "ENTRIES": 10_240,  # things in flight
    "STACKS": 4096,  # that are kept from the begin to the end
    "SUMS": 16_384,  # kinds of events: stacks and labels, in a bucket
    "RING_PAGES": 2048,  # of 4 KiB
    "COPIES_PAGES": 256,
    "COPIES": 8192,  # stacks of which is known when they were copied
    "COPIES_BYTES": 128 << 10,  # ten times a second; unwinding more would take too long
    "COPY_NS": 10_000_000_000,
}


@dataclass(frozen=True, slots=True)
class BccTrackers:
    """The bcc backend; `python` is a Python that has the module bcc."""

    python: str = Bcc().program
    name: str = "bcc"

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `TrackerBackend` documents."""
        return Bcc(self.python).obstacles()

    def how_followed(self) -> str:
        """Return how callers were found, as `TrackerBackend` documents."""
        return how_followed()

    def feed(self, tracker: Tracker, settings: TrackerSettings) -> BccFeed:
        """Return the feed of a tracker; bcc refuses none."""
        forks = forks_program()
        setup = {
            "text": forks + copies_program() + program_of(tracker),
            "knows_forks": bool(forks),
            "tracepoints": (_FORK, *tracker.tracepoints),
            "own": os.getpid(),
            "depths": [_SIZES["KERNEL_DEPTH"], _SIZES["USER_DEPTH"]],
            "interrupts": tracker.uses_interrupts,
            "waking": tracker.waking,
            "filtered_at_end": tracker.filtered_at_end,
            "not_counted": tracker.not_counted,
            "forgotten_after": tracker.forgotten_after,
            "settings": settings.for_program(),
        }
        return BccFeed((self.python, "-I", _PROGRAM), _line(setup))


def program_of(tracker: Tracker) -> str:
    """Return the text of the C program of a tracker."""
    text = _COMMON.read_text() + tracker.program
    return re.sub(rf"\b({'|'.join(_SIZES)})\b", lambda found: str(_SIZES[found[0]]), text)


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
