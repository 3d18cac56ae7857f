"""Each profiler that works on this machine, on programs whose stacks and CPU time are known."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping as Map
from contextlib import suppress
from pathlib import Path

import pytest
from pgo_agent.backends import (
    Backend,
    Bcc,
    Bpftrace,
    KeptBcc,
    Perf,
    ProcessSampler,
    SamplingRequest,
    backends,
    choose,
    probe,
)
from pgo_agent.errors import NoBackend, NoSamples, ToolFailed
from pgo_agent.native import function_names, read_samples
from pgo_agent.native.elf import Elf
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack

from tests.agent import frameless
from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.latency.waiting import samples_of
from tests.agent.sampling import wait_until_sampled, working
from tests.agent.serving import AGENT, parsed
from tests.cpu_meter import CpuMeter, children_of

# Enough samples that the outcome isn't random, even if the program gets only a part of the time.
FREQUENCY = 499
SECONDS = 4.0
# An ordinary user who may also read root's files, since the interpreter may be one of these.
AS_NOBODY = (
    *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
    *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search", "--"),
)
# Only root can become an ordinary user.
needs_root = pytest.mark.system("root")


@pytest.fixture(scope="module", params=[pytest.param(of, marks=pytest.mark.alike(1)) for of in backends()])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A profiler; bcc compiles once for all tests that don't end it."""
    with KeptBcc() as kept:
        yield kept.keeping(working(backends()[request.param]))


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("busy"))


def record(backend: Backend, names: tuple[str, ...] = (NAME,)) -> Recording:
    return backend.record(SamplingRequest(names, FREQUENCY), SECONDS, threading.Event())


def symbols_of(binary: Path) -> dict[str, tuple[int, int]]:
    """Return the address and size of each function, from nm."""
    listed = subprocess.run(["nm", "-S", binary], capture_output=True, text=True, check=True).stdout
    rows = (line.split() for line in listed.splitlines())
    return {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4}


def functions_in(stack: Stack, binary: Path) -> list[str]:
    """Return the functions of the binary on a stack up to main, from its addresses alone."""
    elf, known, found = Elf.read(binary), symbols_of(binary), []
    for frame in stack.frames:
        if frame.mapping and frame.mapping.file == str(binary):
            assert frame.mapping.build_id == elf.build_id
            address = elf.address_of(frame.address - frame.mapping.start + frame.mapping.offset)
            assert address is not None
            found += [name for name, (start, size) in known.items() if start <= address < start + size]
    return [name for name in found if name != "_start"]


@needs_gcc
def test_stacks_are_those_of_the_program(backend: Backend, binary: Path) -> None:
    started, clock = time.time_ns(), time.monotonic_ns()
    with running(binary) as process, CpuMeter(process.pid) as meter:
        recording = record(backend)
    assert started < recording.began < time.time_ns() - SECONDS * 1e9
    assert SECONDS * 1e9 <= recording.duration < time.monotonic_ns() - clock
    assert recording.period == pytest.approx(1e9 / FREQUENCY, rel=0.001)
    assert {(stack.comm, stack.pid, stack.thread) for stack in recording.stacks} == {
        (NAME, process.pid, process.pid)
    }
    count, cpu = map(sum, zip(*recording.stacks.values(), strict=True))
    assert cpu == pytest.approx(count * recording.period, rel=0.01)
    assert cpu / 1e9 == pytest.approx(meter.seconds(recording.began, recording.duration), rel=0.3)
    callers: Counter[str] = Counter()
    in_user_space: Counter[str] = Counter()
    for stack, (seen, _) in recording.stacks.items():
        callers[way := " ".join(functions_in(stack, binary))] += seen
        # bpftrace gives a sample without a stack now and then.
        in_user_space[way] += seen * any(frame.address < 1 << 63 for frame in stack.frames[:1])
    assert callers["inner middle spin main"] > 0.2 * count, callers
    assert sum(callers[way] for way in callers if way.endswith("spin main")) > 0.8 * count, callers
    # By frame pointers `middle` is missing beyond libc's `stat`, which has no frame.
    known = sum(in_user_space[way] for way in in_user_space if way.endswith("middle spin main"))
    assert known > 0.8 * in_user_space.total(), callers


def shares_of(stacks: Map[Stack, int]) -> dict[tuple[str, ...], float]:
    """Return the share of each user stack in the samples, by its functions up to main, leaf first."""
    names, counts = function_names(stacks), Counter[tuple[str, ...]]()
    for stack, count in stacks.items():
        frames = [frame for frame in stack.frames if frame.address < 1 << 63]
        found = [name for frame in frames for name in names.get(frame, ["?"])]
        counts[tuple(found[: found.index("main") + 1] if "main" in found else found)] += count
    return {stack: count / counts.total() for stack, count in counts.items()}


def recorded_beside_perf(folder: Path, way: str) -> tuple[Recording, dict[tuple[str, ...], float]]:
    """Return what bcc recorded of the program without frame pointers, and the shares of perf's stacks."""
    working(Bcc())
    file = folder / "perf.data"
    perf = ("perf", "record", "-q", "-B", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-o", file)
    with (
        frameless.running(frameless.build(folder), way) as process,
        subprocess.Popen([*perf, "-p", str(process.pid)]) as reference,
    ):
        recording = Bcc().record(SamplingRequest((frameless.NAME[:15],), 999), 8.0, threading.Event())
        reference.terminate()
    return recording, shares_of(Counter(sample.stack for sample in read_samples(file)))


@needs_gcc
@pytest.mark.system("perf")
def test_stacks_without_frame_pointers_are_those_of_perf_with_call_frame_information(tmp_path: Path) -> None:
    recording, theirs = recorded_beside_perf(tmp_path, "sort")
    ours = shares_of({stack: count for stack, (count, _) in recording.stacks.items()})
    for shares in (ours, theirs):
        assert sum(share for stack, share in shares.items() if stack[-1:] == ("main",)) > 0.95, shares
    common = sum(min(share, theirs.get(stack, 0)) for stack, share in ours.items())
    assert common > 0.8, (ours, theirs)
    assert recording.cut_short is not None
    assert recording.cut_short < 0.05 * sum(count for count, _ in recording.stacks.values())


@needs_gcc
@pytest.mark.system("perf")
def test_a_program_without_frame_pointers_that_waits_has_its_whole_stack_as_with_perf(tmp_path: Path) -> None:
    """It is sampled as it begins to wait or has waited, in the kernel, so that shares say nothing."""
    recording, theirs = recorded_beside_perf(tmp_path, "blink")
    ours = shares_of({stack: count for stack, (count, _) in recording.stacks.items()})
    for shares in (ours, theirs):
        whole = [share for stack, share in shares.items() if list(stack) == frameless.NAPPING[-len(stack) :]]
        assert sum(whole) > 0.95, shares
        assert tuple(frameless.NAPPING) in shares


@needs_gcc
def test_the_kernel_is_in_the_stacks_and_its_leaf_once(backend: Backend, binary: Path) -> None:
    with running(binary):
        recording = record(backend)
    in_kernel = [
        [frame for frame in stack.frames if frame.address > 1 << 63]
        for stack in recording.stacks
        if stack.frames[0].address > 1 << 63
    ]
    assert in_kernel
    assert any(frame.symbol == "do_syscall_64" for frames in in_kernel for frame in frames)
    assert all(frame.symbol for frames in in_kernel for frame in frames)
    assert not [frames for frames in in_kernel if frames[0] in frames[1:2]]
    (mapping,) = {frame.mapping for frames in in_kernel for frame in frames if frame.mapping}
    assert mapping.file == "[kernel.kallsyms]"
    assert len(mapping.build_id) == 40
    assert mapping.start <= in_kernel[0][-1].address < mapping.start + mapping.size


@needs_gcc
def test_other_threads_of_a_process_are_of_its_name_too(backend: Backend, binary: Path) -> None:
    with running(binary, "threads") as process:
        recording = record(backend)
    assert {(stack.comm, stack.pid) for stack in recording.stacks} == {("helper", process.pid)}
    assert process.pid not in {stack.thread for stack in recording.stacks}
    with running(binary, "threads"), pytest.raises(NoSamples, match="no process named helper runs"):
        ProcessSampler(backend, ("helper",)).sample(0.5, threading.Event())


@needs_gcc
def test_processes_that_come_and_go_are_in_it(backend: Backend, binary: Path) -> None:
    """Each process runs only briefly, and most start after the profiler."""
    with running(binary, "forks") as process:
        recording = record(backend)
    assert len({stack.pid for stack in recording.stacks} - {process.pid}) > 5
    in_user_space = {  # the stack of a process that is exiting may have no frames
        stack: seen
        for stack, (seen, _) in recording.stacks.items()
        if stack.frames and stack.frames[0].address < 1 << 63
    }
    known = sum(seen for stack, seen in in_user_space.items() if "middle" in functions_in(stack, binary))
    assert known > 0.7 * sum(in_user_space.values())


@needs_gcc
@needs_root
def test_a_parent_that_can_not_be_looked_at_takes_no_stacks(
    backend: Backend, binary: Path, tmp_path: Path
) -> None:
    """Profile a daemon whose parent's executable can't be read, as `/proc/1/exe` can't in many containers."""
    profile = tmp_path / "cpu.pb.gz"
    before = ("setpriv", "--bounding-set=-sys_ptrace", "--")
    chosen = ("--profiler", backend.name, "--executable", NAME)
    often = ("--frequency", str(FREQUENCY), "--duration", str(SECONDS))
    with running(binary, "hidden", before=before) as process:
        looked = subprocess.run(
            [*before, "readlink", f"/proc/{process.pid}/exe"], capture_output=True, check=False
        )
        assert looked.returncode == 1
        capture: list[str | Path] = [*before, AGENT, "capture", *chosen, *often, "--json", "-o", profile]
        done = subprocess.run(capture, check=True, capture_output=True)
    said = json.loads(done.stdout)
    assert said["lost_stacks"] < 0.05 * said["samples"]
    samples = samples_of(profile.read_bytes())
    known = sum(one.events for one in samples if {"spin", "main"} <= {*one.functions})
    assert known > 0.8 * said["samples"], samples


@needs_gcc
@needs_root
def test_a_program_in_a_container_is_what_its_processes_see(
    backend: Backend, binary: Path, tmp_path: Path
) -> None:
    """Another file is at the path here, and the agent can't enter the process's root, as from a container."""
    path, profile = tmp_path / NAME, tmp_path / "cpu.pb.gz"
    shutil.copy("/bin/ls", path)
    enter = 'mount -t tmpfs none "${1%/*}" && cp "$2" "$1" && exec "$1"'
    entered = ("unshare", "--mount", "sh", "-c", enter, "sh", path, binary)
    chosen = ("--profiler", backend.name, "--executable", NAME)
    often = ("--frequency", str(FREQUENCY), "--duration", str(SECONDS))
    capture = ("setpriv", "--bounding-set=-sys_chroot", "--", AGENT, "capture", *chosen, *often)
    with subprocess.Popen(entered, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"busy\n"
            subprocess.run([*capture, "-o", profile], check=True, capture_output=True)
        finally:
            process.kill()
    taken = parsed(profile.read_bytes())
    texts = [text.decode() for text in taken.string_table]
    builds = {(texts[of.filename], texts[of.build_id]) for of in taken.mapping}
    assert {build for file, build in builds if file == str(path)} == {Elf.read(binary).build_id}
    assert {"main", "spin", "middle", "inner"} <= {texts[of.name] for of in taken.function}


@needs_gcc
def test_it_can_be_ended_early_and_leaves_no_process(backend: Backend, binary: Path) -> None:
    before = children_of(os.getpid())
    ended = threading.Event()
    with running(binary) as process:

        def end() -> None:
            try:
                wait_until_sampled(os.getpid(), process.pid)
            finally:
                ended.set()

        ending = threading.Thread(target=end)
        ending.start()
        recording = backend.record(SamplingRequest((NAME,), FREQUENCY), 600.0, ended)
        ending.join()
    assert recording.stacks
    assert recording.duration < 600e9
    assert {*children_of(os.getpid())} <= {*before}


@pytest.mark.system
def test_no_process_is_left_when_the_agent_is_killed(backend: Backend, tmp_path: Path) -> None:
    command: list[str | Path] = [
        Path(sys.executable).with_name("pgo-agent"),
        "capture",
        "-o",
        tmp_path / "cpu.pb.gz",
    ]
    with subprocess.Popen([*command, "--profiler", backend.name, "--duration", "60"]) as agent:
        while not (left := children_of(agent.pid)):
            time.sleep(0.05)
        agent.kill()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in left):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.system("perf")
def test_no_busy_process_is_left_when_the_agent_is_killed_as_it_tries_a_profiler() -> None:
    def busy(pids: list[int]) -> list[int]:
        with suppress(OSError):
            return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "pgo-agent-probe\n"]
        return []

    with subprocess.Popen([AGENT, "doctor", "perf"]) as agent:
        while not (left := busy(children_of(agent.pid))):
            assert agent.poll() is None
            time.sleep(0.01)
        agent.kill()
    deadline = time.monotonic() + 60
    while busy(left):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_root
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bcc", "the capabilities CAP_BPF and CAP_PERFMON are missing: run it as root"),
        ("bpftrace", "works only as root"),
        ("perf", "the capability CAP_PERFMON is missing: run it as root"),
    ],
)
def test_an_ordinary_user_is_told_which_right_is_missing(name: str, reason: str, tmp_path: Path) -> None:
    command: list[str | Path] = [
        Path(sys.executable).with_name("pgo-agent"),
        "capture",
        "-o",
        tmp_path / "out",
    ]
    done = subprocess.run(
        [*AS_NOBODY, *command, "--profiler", name, "--duration", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (Bcc("/nowhere/python3"), "/nowhere/python3 has no module bcc: apt-get install python3-bpfcc"),
        (Perf("/nowhere/perf"), "/nowhere/perf is not installed: apt-get install linux-perf"),
        (Bpftrace("/nowhere/bpftrace"), "/nowhere/bpftrace is not installed: apt-get install bpftrace"),
    ],
    ids=lambda value: value.name if isinstance(value, Bcc | Perf | Bpftrace) else "",
)
def test_a_missing_profiler_is_told_with_its_package(missing: Backend, reason: str) -> None:
    with pytest.raises(ToolFailed, match=reason):
        probe(missing)


class Blind:
    """A profiler that can't read the memory maps of processes, as without CAP_SYS_PTRACE."""

    name, is_shared = "blind", False

    def record(self, request: SamplingRequest, duration: float, until: threading.Event) -> Recording:
        until.wait(duration / 100)
        kernel = Mapping("[kernel.kallsyms]", "", 1 << 63, 1 << 24, 0)
        frames = ((Frame((1 << 63) + 8, kernel, "schedule"),), (Frame(0x1000, None, ""),))
        stacks = {Stack("busy", 1, 1, one): (1, request.period) for one in frames}
        return Recording(0, 1, request.period, stacks)

    def obstacles(self) -> list[str]:
        return []


def test_a_profiler_that_sees_only_the_kernel_does_not_work() -> None:
    with pytest.raises(ToolFailed, match="blind: it gave no stacks of a busy process"):
        probe(Blind())


@pytest.mark.system
def test_the_first_that_works_is_chosen(backend: Backend) -> None:
    assert choose([Perf("/nowhere/perf"), backend]) is backend


def test_where_none_works_the_reason_for_each_is_told() -> None:
    with pytest.raises(NoBackend) as raised:
        choose([Perf("/nowhere/perf"), Bpftrace("/nowhere/bpftrace")])
    assert {*raised.value.reasons} == {"perf", "bpftrace"}
    assert "perf is not installed" in str(raised.value)


@pytest.mark.parametrize("name", ["", "longer-than-15-bytes", 'a"b', "a\\b", "a\nb"])
def test_a_name_that_no_process_has_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a process"):
        SamplingRequest((name,), FREQUENCY)
