"""A C program that waits in functions with known names, and what a tracker says of it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pgo_agent.errors import ToolFailed
from pgo_agent.latency import (
    TRACKERS,
    Recorder,
    Session,
    TrackerBackend,
    TrackerSettings,
    probe,
    tracker_backends,
)

from tests.agent.serving import parsed

SOURCE = Path(__file__).with_name("waits.c")
# A name that no other process of the machine has.
NAME = f"waits-{os.getpid()}"
MS = 1_000_000
_PATIENCE_SECONDS = 120.0


def build(folder: Path) -> Path:
    """Compile the program, with debug information and all frame pointers, and return its path."""
    binary = folder / NAME
    flags = ("-O0", "-g", "-pthread", "-Wall", "-Werror")
    subprocess.run(["gcc", *flags, "-o", binary, SOURCE], check=True)
    return binary


@contextmanager
def waiting(
    binary: Path, way: str, *arguments: Path, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program until the end of the block; `before` is a command that becomes it."""
    command: list[str | Path] = [*before, binary, way, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"waits\n"
            yield process
        finally:
            process.kill()


def needs_tracker(tracker: str, backend: str | None = None) -> None:
    """Skip the test, with the reason, if a tracker doesn't work on this machine."""
    if reason := _obstacle(tracker, backend):
        pytest.skip(reason)


@cache  # bcc compiles for seconds
def _obstacle(tracker: str, backend: str | None) -> str:
    try:
        probe(TRACKERS[tracker], None if backend is None else tracker_backends()[backend])
    except ToolFailed as error:
        return str(error)
    return ""


class Tracking(NamedTuple):
    session: Session
    recorder: Recorder


@contextmanager
def tracking(
    tracker: str, settings: Mapping[str, Any], backend: TrackerBackend | None = None
) -> Iterator[Tracking]:
    """Run a tracker and record what it counts; skip the test if it doesn't work on this machine."""
    session = Session(TRACKERS[tracker], TrackerSettings.parse(settings), backend)
    recorder = Recorder(tracker)
    session.listen(recorder)
    try:
        session.start()
    except ToolFailed as error:
        pytest.skip(str(error))
    try:
        yield Tracking(session, recorder)
    finally:
        session.stop()


class Sample(NamedTuple):
    """A sample with the names of its functions, leaf first, and its labels by name."""

    functions: list[str]
    events: int
    delay: int
    labels: dict[str, str | int]


def samples_of(profile: bytes) -> list[Sample]:
    """Return the samples of a gzipped profile."""
    read = parsed(profile)
    texts = [text.decode() for text in read.string_table]
    functions = {function.id: texts[function.name] for function in read.function}
    lines = {
        location.id: [functions[line.function_id] for line in location.line] for location in read.location
    }
    return [
        Sample(
            [name for location in sample.location_id for name in lines[location]],
            sample.value[0],
            sample.value[1],
            {texts[label.key]: texts[label.str] if label.str else label.num for label in sample.label},
        )
        for sample in read.sample
    ]


def wait_for_samples(recorder: Recorder, wanted: Callable[[Sample], bool]) -> list[Sample]:
    """Return the wanted samples of the profile, as soon as there are any."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (found := [sample for sample in samples_of(recorder.profile()) if wanted(sample)]):
        assert time.monotonic() < deadline, samples_of(recorder.profile())
        time.sleep(0.5)
    return found


def wait_until(condition: Callable[[], object]) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
