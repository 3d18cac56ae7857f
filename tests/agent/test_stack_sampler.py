"""Test profiles of Python threads: their stacks and their CPU time."""

from __future__ import annotations

import gzip
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import pytest
from pgo_agent import StackSampler
from pprof_proto.profile_pb2 import Profile

from tests.cpu_meter import when_taken

Frame = tuple[str, str, int, int]  # name, file, first line, line


def spin(ended: Event) -> None:
    while not ended.is_set():
        sum(range(1000))  # the hot line


def recurse(ended: Event, depth: int) -> None:
    if depth:
        recurse(ended, depth - 1)
    else:
        spin(ended)


class Sleeper:
    def __init__(self) -> None:
        self.sleeps = Event()

    def sleep(self, ended: Event) -> None:
        self.sleeps.set()
        ended.wait()


@contextmanager
def running(*bodies: Callable[[Event], None]) -> Iterator[None]:
    """Run each function on a thread of its own."""
    ended = Event()
    threads = [threading.Thread(target=body, args=(ended,)) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def parsed(profile: bytes) -> Profile:
    return Profile.FromString(gzip.decompress(profile))


def stacks(profile: Profile) -> list[tuple[list[Frame], list[int]]]:
    """Return the frames, innermost first, and the values of each sample."""
    text = [string.decode() for string in profile.string_table]
    functions = {of.id: (text[of.name], text[of.filename], of.start_line) for of in profile.function}
    lines = {of.id: of.line for of in profile.location}
    return [
        (
            [(*functions[line.function_id], line.line) for id_ in sample.location_id for line in lines[id_]],
            [*sample.value],
        )
        for sample in profile.sample
    ]


def sampled(rate: float = 100.0) -> Profile:
    """Use half a second of CPU time, however long that takes."""
    with when_taken(0.5) as enough:
        return parsed(StackSampler(rate).sample(600.0, enough))


def test_a_busy_thread_has_its_stack_with_files_and_lines() -> None:
    with running(spin):
        profile = sampled()
    source, start_line = inspect.getsourcelines(spin)
    hot_line = start_line + next(number for number, line in enumerate(source) if "the hot line" in line)
    frames, _ = max(stacks(profile), key=lambda stack: stack[1])
    (own,) = [number for number, frame in enumerate(frames) if frame[0].endswith("test_stack_sampler.spin")]
    name, file, first, line = frames[own]
    assert (name, file, first) == (f"{__name__}.spin", __file__, start_line)
    assert line in {hot_line, hot_line - 1}
    assert frames[own + 1][0] == "threading.Thread.run"
    assert frames[-1][0] == "threading.Thread._bootstrap"


def test_the_header_and_the_values_are_those_of_a_cpu_profile() -> None:
    before, cpu = time.time_ns(), time.process_time_ns()
    with running(spin, spin):
        profile = parsed(StackSampler(200.0).sample(1.0, Event()))
    after, cpu = time.time_ns(), time.process_time_ns() - cpu
    text = profile.string_table
    cpu_type = (b"cpu", b"nanoseconds")
    assert [(text[of.type], text[of.unit]) for of in profile.sample_type] == [
        (b"samples", b"count"),
        cpu_type,
    ]
    assert (text[profile.period_type.type], text[profile.period_type.unit]) == cpu_type
    assert profile.period == 5_000_000
    assert before <= profile.time_nanos <= profile.time_nanos + profile.duration_nanos <= after
    assert profile.duration_nanos >= 1_000_000_000
    assert all(min(sample.value) > 0 for sample in profile.sample)
    assert 0 < sum(sample.value[1] for sample in profile.sample) <= cpu


def test_threads_that_sleep_and_the_sampler_itself_are_not_in_it() -> None:
    sleeper = Sleeper()
    with running(spin, sleeper.sleep):
        # The sampler's own work isn't in the profile.
        assert sleeper.sleeps.wait(60)
        frames = [frame[0] for stack, _ in stacks(sampled(rate=1000.0)) for frame in stack]
    assert f"{__name__}.spin" in frames
    assert f"{__name__}.Sleeper.sleep" not in frames
    assert not [name for name in frames if name.startswith("pgo_agent")]


def test_recursion_is_there_as_deep_as_it_is() -> None:
    with running(lambda ended: recurse(ended, 50)):
        deepest = max(
            len([f for f in frames if f[0] == f"{__name__}.recurse"]) for frames, _ in stacks(sampled())
        )
    assert deepest == 51


def test_the_outermost_frames_of_a_deep_recursion_are_left_out() -> None:
    with running(lambda ended: recurse(ended, 900)):
        deepest = max(stacks(sampled()), key=lambda stack: len(stack[0]))[0]
    assert len(deepest) == 512
    assert f"{__name__}.spin" in {frame[0] for frame in deepest[:3]}


def test_threads_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    def short_threads(ended: Event) -> None:
        while not ended.is_set():
            thread = threading.Thread(target=sum, args=(range(200_000),))
            thread.start()
            thread.join()

    with running(short_threads, short_threads):
        profile = sampled(rate=500.0)
    assert profile.sample
    assert not caplog.text


def test_it_ends_when_told_to() -> None:
    until = Event()
    timer = threading.Timer(0.1, until.set)
    timer.start()
    profile = parsed(StackSampler().sample(600.0, until))
    timer.join()
    assert profile.duration_nanos < 60_000_000_000


@pytest.mark.parametrize("rate", [0.0, -1.0, 1001.0])
def test_a_rate_that_makes_no_sense_is_told_at_once(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        StackSampler(rate)
