"""Hold the sampler's shares of CPU time against those that the program counts itself.

Each program computes for some milliseconds, then waits: a sampler that needs the interpreter's lock sees the
waits only.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from pgo_agent import StackSampler
from pprof_proto.profile_pb2 import Profile

from tests.cpu_meter import cpu_seconds_for, when_taken

READER = Path(sys.modules["pgo_agent"].__file__ or "").with_name("stack_reader.py")
WAIT_SECONDS = 0.005
COMPUTED = ("compute_most", "compute_rest")
used: Counter[str] = Counter()


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))


def compute_most(seconds: float) -> None:
    began = time.thread_time()
    burn(seconds * 2 / 3)
    used["compute_most"] += time.thread_time_ns() - int(began * 1e9)


def compute_rest(seconds: float) -> None:
    began = time.thread_time()
    burn(seconds / 3)
    used["compute_rest"] += time.thread_time_ns() - int(began * 1e9)


def compute_without_lock(blocks: bytes) -> None:
    began = time.thread_time_ns()
    hashlib.sha256(blocks)  # lets go of the interpreter's lock
    used["compute_without_lock"] += time.thread_time_ns() - began


def wait() -> None:
    time.sleep(WAIT_SECONDS)


def serve(ended: Event, seconds: float) -> None:
    while not ended.is_set():
        compute_most(seconds)
        compute_rest(seconds)
        wait()


def serve_with_asyncio(ended: Event, seconds: float) -> None:
    async def handle() -> None:
        while not ended.is_set():
            compute_most(seconds)
            compute_rest(seconds)
            await asyncio.sleep(WAIT_SECONDS)

    async def handle_all() -> None:
        await asyncio.gather(handle(), handle())

    asyncio.run(handle_all())


def serve_without_lock(ended: Event, seconds: float) -> None:
    blocks = bytes(1_000_000)
    began = time.thread_time()
    hashlib.sha256(blocks)
    blocks *= max(1, round(seconds / (time.thread_time() - began)))
    used.clear()
    while not ended.is_set():
        compute_most(seconds)
        compute_without_lock(blocks)
        wait()


def sampled(body: Callable[[Event, float], None], seconds: float, taken: float) -> Profile:
    """Return a profile of a thread that serves until the process has used `taken` seconds of CPU time."""
    used.clear()
    ended = Event()
    thread = threading.Thread(target=body, args=(ended, seconds))
    thread.start()
    try:
        with when_taken(taken) as enough:
            return Profile.FromString(gzip.decompress(StackSampler(500.0).sample(600.0, enough)))
    finally:
        ended.set()
        thread.join()


def shares(profile: Profile, functions: tuple[str, ...]) -> Counter[str]:
    """Return the share of the CPU time below each of the functions; that of all other code is `others`."""
    names = {of.id: profile.string_table[of.name].decode().rpartition(".")[2] for of in profile.function}
    lines = {of.id: [names[line.function_id] for line in of.line] for of in profile.location}
    found: Counter[str] = Counter()
    for sample in profile.sample:
        below = {name for id_ in sample.location_id for name in lines[id_]}
        found[next((name for name in functions if name in below), "others")] += sample.value[1]
    return Counter({name: time / found.total() for name, time in found.items()})


def assert_true(profile: Profile, functions: tuple[str, ...]) -> None:
    """Assert that each function's share is within 5 points of the truth, and of what chance allows.

    Where more programs want the CPUs than there are, the reader looks when they leave it one: what computes
    is then told from what waits as well, but of two that compute, one may be seen more often.
    """
    is_busy = os.getloadavg()[0] > 1.5 * len(os.sched_getaffinity(0))
    looks = sum(sample.value[0] for sample in profile.sample)
    assert looks > 20
    found = shares(profile, (*functions, "wait"))
    for name in (*functions, "wait", "others"):
        true = used[name] / used.total()
        # The standard deviation of a share, of 3 % at least: samples have different weights.
        chance = (max(true * (1 - true), 0.03) * 2 / looks) ** 0.5
        off = 0.3 if is_busy and name in functions else 0.05
        assert abs(found[name] - true) < off + 3 * chance, (name, found, used, looks)


@pytest.mark.parametrize("milliseconds", [1, 3, 15, 50])
def test_what_computes_before_a_wait_has_the_cpu_time(milliseconds: int) -> None:
    profile = sampled(serve, milliseconds / 1000, 0.7 if milliseconds == 1 else 1.5)
    assert profile.string_table[profile.comment[0]] == b"Python stacks: read from a process beside"
    assert_true(profile, COMPUTED)


@pytest.mark.parametrize("milliseconds", [1, 15])
def test_coroutines_have_the_cpu_time_that_they_use(milliseconds: int) -> None:
    assert_true(sampled(serve_with_asyncio, milliseconds / 1000, 1.0), COMPUTED)


@pytest.mark.parametrize("milliseconds", [3, 15])
def test_code_that_computes_without_the_lock_has_its_cpu_time(milliseconds: int) -> None:
    profile = sampled(serve_without_lock, milliseconds / 1000, 1.5)
    assert_true(profile, ("compute_most", "compute_without_lock"))


def test_the_cpu_time_of_all_samples_is_what_the_threads_used() -> None:
    cpu = time.process_time_ns()
    profile = sampled(serve, 0.02, 1.5)
    cpu = time.process_time_ns() - cpu
    assert 0.8 * cpu < sum(sample.value[1] for sample in profile.sample) <= cpu


def test_threads_that_come_and_go_have_no_more_cpu_time_than_they_used() -> None:
    def serve_by_threads(ended: Event, seconds: float) -> None:
        while not ended.is_set():
            threads = [threading.Thread(target=burn, args=(seconds,)) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    burn(2.0)  # what the main thread used before isn't theirs
    cpu = time.process_time_ns()
    profile = sampled(serve_by_threads, 0.00001, 2.0)
    cpu = time.process_time_ns() - cpu
    assert 0 < sum(sample.value[1] for sample in profile.sample) <= cpu


def test_a_process_that_cannot_be_read_is_looked_at_from_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    profile = sampled(serve, 0.02, 0.5)
    assert b"seen from inside" in profile.string_table[profile.comment[0]]
    assert sum(sample.value[1] for sample in profile.sample) > 100_000_000


def test_the_reader_takes_a_few_percent_of_a_cpu() -> None:
    """It takes 2 % of a quick CPU. One that is woken 180 times a second may take thrice as long each time."""

    def spin(ended: Event, depth: float) -> None:
        if depth:
            spin(ended, depth - 1)
        while not ended.is_set():
            sum(range(1000))

    def sampling(seconds: float) -> float:
        """Return the CPU time that it takes to sample for so long."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        StackSampler().sample(seconds, Event())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    ended = Event()
    thread = threading.Thread(target=spin, args=(ended, 30))
    thread.start()
    try:
        assert sampling(5.1) - sampling(0.1) < cpu_seconds_for(0.04 * 5)
    finally:
        ended.set()
        thread.join()


PROGRAM = """
import importlib.util, json, subprocess, sys, threading, time
spec = importlib.util.spec_from_file_location("stack_reader", sys.argv[1])
reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(200))

def größe():
    burn(0.002)

def compute_rest():
    burn(0.001)

def serve():
    while not ended:
        größe()
        compute_rest()
        time.sleep(0.005)

ended = False
serving = threading.Thread(target=serve)
serving.start()
process = subprocess.Popen(
    [sys.executable, "-I", "-S", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
print(json.dumps(reader.target() | {"period": 0.002}), file=process.stdin, flush=True)
assert process.stdout.readline() == "ready\\n"
began = time.process_time()
while time.process_time() - began < 0.7:
    time.sleep(0.05)
print(process.communicate()[0])
ended = True
"""


def interpreters() -> list[str]:
    """Return an interpreter of each version that is installed, apart from this one."""
    found: dict[str, str] = {}
    folders = [Path("/usr/bin"), Path("/usr/local/bin"), *Path.home().glob(".pyenv/versions/*/bin")]
    for folder in folders:
        for file in folder.glob("python3.1[1-9]*"):
            if file.name.removeprefix("python3.").removesuffix("t").isdigit():
                found.setdefault(file.name, str(file))
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("python", interpreters())
def test_each_version_of_python_is_read(python: str) -> None:
    done = subprocess.run(
        [python, "-X", "utf8", "-c", PROGRAM, READER], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    names = [name for _, name, _, _ in result["places"]]
    found: Counter[str] = Counter()
    for numbers, _, cpu_time in result["stacks"]:
        below = {names[number] for number in numbers}
        found[next((name for name in ("größe", "compute_rest") if name in below), "others")] += cpu_time
    looks = sum(count for _, count, _ in result["stacks"])
    assert abs(found["größe"] / found.total() - 2 / 3) < 0.05 + 3 * (0.5 / looks) ** 0.5, found
    assert found["others"] / found.total() < 0.1
    (line,) = {line for _, name, _, line in result["places"] if name == "größe"}
    assert PROGRAM.splitlines()[line - 1].strip() == "burn(0.002)"
