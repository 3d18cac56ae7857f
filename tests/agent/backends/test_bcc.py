"""Sampling by bcc, with bcc_program.py as it is, over a kernel that samples what the test says."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pgo_agent.backends import Bcc, KeptBcc, ProcessSampler, copies_program, forks_program
from pgo_agent.backends.bcc_python import python_program
from pgo_agent.errors import NoSamples, ToolFailed
from pgo_agent.native import Recording, function_names
from pgo_agent.native.elf import Elf

from tests.agent.busy import needs_gcc
from tests.agent.frameless import NAME, NAPPING, build, copied, running, waiting
from tests.agent.latency.waiting import wait_until
from tests.agent.sampling import is_bcc
from tests.agent.serving import parsed
from tests.agent.stand_ins.tools import StandInKernel, needs_btf, use_stand_ins
from tests.cpu_meter import children_of

SECONDS = 0.5
PATH = os.environ["PATH"]
GONE = 4_000_000  # a pid that no process has


def own_name() -> str:
    return Path("/proc/self/comm").read_text().rstrip("\n")


def own_code() -> tuple[int, Path]:
    """Return the address and the file of some code of this process."""
    maps = Path("/proc/self/maps").read_text()
    found = re.search(r"^(\w+)-\w+ r-xp \S+ \S+ [1-9]\d* +(/\S+)$", maps, re.MULTILINE)
    assert found
    return int(found[1], 16) + 0x10, Path(found[2])


def sample(**of: Any) -> dict[str, Any]:
    own = {"what": "sample", "pid": os.getpid(), "thread": os.getpid(), "comm": own_name()}
    return {**own, "kernel": [], "user": [], **of}


def fork(pid: int, parent: int) -> dict[str, Any]:
    return {"what": "fork", "pid": pid, "parent": parent}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInKernel:
    use_stand_ins(monkeypatch)
    return StandInKernel(tmp_path, monkeypatch)


def sampler(kernel: StandInKernel, *names: str) -> ProcessSampler:
    return ProcessSampler(Bcc(kernel.python()), names)


def test_samples_of_a_process_become_a_profile_with_its_lines(kernel: StandInKernel) -> None:
    """All threads of a process of this name count, and one whose process has ended by its own name."""
    address, file = own_code()
    caller = address + 0x20
    kernel.happens(
        *[sample(user=[address, caller])] * 3,
        sample(user=[address], thread=1, comm="helper"),
        sample(user=[], pid=GONE, thread=GONE),
        sample(user=[], pid=GONE + 1, thread=GONE + 2, comm="helper"),
        sample(user=[address], comm="other"),
    )
    profile = parsed(sampler(kernel, own_name()).sample(SECONDS, Event()))
    texts = [text.decode() for text in profile.string_table]
    functions = {of.id: texts[of.name] for of in profile.function}
    lines = {of.id: [(functions[line.function_id], line.line) for line in of.line] for of in profile.location}
    labels = [{texts[of.key]: of.num or texts[of.str] for of in one.label} for one in profile.sample]
    assert [(one["pid"], one["thread"], one["comm"]) for one in labels] == [
        (os.getpid(), os.getpid(), own_name()),
        (os.getpid(), 1, "helper"),
        (GONE, GONE, own_name()),
    ]
    assert [one.value[0] for one in profile.sample] == [3, 1, 1]
    assert {one.value[1] // one.value[0] for one in profile.sample} == {profile.period}
    leaf, called = profile.sample[0].location_id
    assert lines[leaf] == lines[called] == [("sell()", 7), ("main", 12)]
    where = {of.id: of.address for of in profile.location}
    assert where[called] - where[leaf] == 0x20 - 1  # the call is before its return address
    main = profile.mapping[0]
    assert (texts[main.filename], texts[main.build_id]) == (str(file), Elf.read(file).build_id)
    assert main.has_line_numbers


@needs_btf
def test_processes_that_have_ended_have_the_functions_of_the_one_that_each_was_forked_from(
    kernel: StandInKernel, caplog: pytest.LogCaptureFixture
) -> None:
    """Two servers run: one is this process. Of the other's, and of no server's, nothing is made up."""
    address, _ = own_code()
    kernel.happens(
        *(
            fork(GONE, os.getpid()),
            fork(GONE + 2, GONE + 1),
            fork(GONE + 1, os.getpid()),
            fork(GONE + 3, GONE + 4),
        ),
        *(sample(pid=GONE + of, thread=GONE + of, user=[address]) for of in (0, 2, 3, 5)),
    )
    recording = sampler(kernel, own_name()).record(SECONDS, Event())
    known = {stack.pid: [frame.mapping is not None for frame in stack.frames] for stack in recording.stacks}
    assert known == {GONE: [True], GONE + 2: [True], GONE + 3: [False], GONE + 5: [False]}
    assert recording.lost_stacks == 2
    assert "stacks lost: count=2 samples=4" in caplog.text


def test_without_forks_samples_are_taken_and_stacks_that_are_lost_counted(
    kernel: StandInKernel,
) -> None:
    address, _ = own_code()
    kernel.happens(sample(user=[address]), sample(pid=GONE, thread=GONE, user=[address]))
    recording = sampler(kernel, own_name()).record(SECONDS, Event())
    assert (len(recording.stacks), recording.lost_stacks) == (2, 1)


@pytest.fixture(scope="module")
def frameless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("frameless"))


def names_in(recording: Recording) -> list[list[str]]:
    """Return the functions of each stack, leaf first, up to main."""
    names = function_names(recording.stacks)
    named = [[name for of in stack.frames for name in names.get(of, ["?"])] for stack in recording.stacks]
    return [stack[: stack.index("main") + 1] if "main" in stack else stack for stack in named]


@needs_btf
@needs_gcc
def test_a_program_without_frame_pointers_has_all_of_its_callers(
    kernel: StandInKernel, frameless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel finds libc's function only, and the copy has the others. Without a copy, it is counted."""
    monkeypatch.setenv("PATH", PATH)  # with LLVM's own tools
    with running(frameless, "nap") as process:
        found = waiting(process.pid)
        own = {"pid": process.pid, "comm": NAME[:15], "user": [found.address]}
        in_kernel = {"user": [], "kernel": [0xFFFF_0000_0000_0010]}
        kernel.happens(
            *[sample(**own, **copied(found), thread=1)] * 3,
            sample(**own, thread=2),
            sample(**own | in_kernel, thread=3),
        )
        recording = sampler(kernel, NAME[:15]).record(SECONDS, Event())
    assert names_in(recording) == [NAPPING, NAPPING[:1], ["?"]]
    assert [count for count, _ in recording.stacks.values()] == [3, 1, 1]
    assert [*recording.comments()] == ["stacks: by call frame information; 1 of 5 (20.0 %) cut short"]


@needs_btf
@needs_gcc
def test_a_stack_that_is_larger_than_its_copy_goes_on_as_the_kernel_followed_it(
    kernel: StandInKernel, frameless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", PATH)
    with running(frameless, "nap") as process:
        found = waiting(process.pid)
        own = {"pid": process.pid, "comm": NAME[:15]}
        kernel.happens(sample(**own, **copied(found), user=[found.address]))
        (whole,) = sampler(kernel, NAME[:15]).record(SECONDS, Event()).stacks
        leaf, *callers = whole.frames
        # `work` has 512 bytes on the stack.
        small = sample(**own, **copied(found, 400), user=[leaf.address, *(of.address + 1 for of in callers)])
        kernel.happens(small)
        recording = sampler(kernel, NAME[:15]).record(SECONDS, Event())
    (known,) = recording.stacks
    assert known.frames == whole.frames
    assert recording.cut_short == 0


@needs_btf
def test_functions_of_python_that_are_not_of_the_stack_are_not_told(kernel: StandInKernel) -> None:
    """Without a copy of the stack, nobody knows where in it they belong."""
    address, _ = own_code()
    kernel.happens(sample(user=[address], python=[0, 0, 0, address, 16, 16, 16, 16]), sample(user=[address]))
    recording = sampler(kernel, own_name()).record(SECONDS, Event())
    ((stack, (count, _)),) = recording.stacks.items()
    assert ([frame.mapping is not None for frame in stack.frames], count) == ([True], 2)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert recording.python == f"Python frames: in 0 of 2 samples of CPython {version}"


@needs_btf
def test_a_kernel_that_finds_the_program_too_long_samples_without_python(
    kernel: StandInKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = forks_program() + copies_program() + python_program(1)
    monkeypatch.setenv("BCC_LONGEST", str(len(text)))
    address, _ = own_code()
    kernel.happens(sample(user=[address]))
    assert len(sampler(kernel, own_name()).record(SECONDS, Event()).stacks) == 1
    monkeypatch.setenv("BCC_LONGEST", "100")
    with pytest.raises(ToolFailed):
        sampler(kernel, own_name()).record(SECONDS, Event())


def kept_processes() -> set[int]:
    """Return the processes of bcc that this one has."""
    return {*filter(is_bcc, children_of(os.getpid()))}


def record_kept(
    kept: KeptBcc, kernel: StandInKernel, frequency: int = 99, seconds: float = SECONDS
) -> Recording:
    backend = kept.keeping(Bcc(kernel.python()))
    return ProcessSampler(backend, (own_name(),), frequency).record(seconds, Event())


def counted(recording: Recording) -> list[tuple[int, int]]:
    """Return the thread and the number of samples of each stack."""
    return sorted((stack.thread, count) for stack, (count, _) in recording.stacks.items())


def test_what_is_compiled_once_takes_one_profile_after_the_other(kernel: StandInKernel) -> None:
    """Each has its own samples. Without it, none is left."""
    with KeptBcc() as kept:
        kernel.happens(sample(thread=1))
        assert counted(record_kept(kept, kernel)) == [(1, 1)]
        first = kept_processes()
        kernel.happens(sample(thread=2), sample(thread=2), {"what": "lose"})
        assert counted(record_kept(kept, kernel, 499)) == [(2, 2)]
        assert kept_processes() == first
        assert len(first) == 1
    assert kept_processes() == set()
    kernel.happens(sample())
    sampler(kernel, own_name()).record(SECONDS, Event())
    assert kept_processes() == set()


@pytest.mark.parametrize("frequencies", [(99, 99), (99, 499)])
def test_profiles_at_once_share_it_and_each_has_all_samples_of_its_time(
    kernel: StandInKernel, frequencies: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with KeptBcc() as kept, ThreadPoolExecutor() as pool:
        kernel.happens(sample(thread=1))
        record_kept(kept, kernel)  # so that both begin now
        caplog.clear()
        long = pool.submit(record_kept, kept, kernel, frequencies[0], 2.0)
        short = pool.submit(record_kept, kept, kernel, frequencies[1], 1.0)
        wait_until(lambda: caplog.text.count("sampling") == 2)  # both have begun
        kernel.happens(*[sample(thread=2)] * 3)
        assert counted(short.result()) == [(2, 3)]
        kernel.happens(sample(thread=4))
        assert counted(long.result()) == [(2, 3), (4, 1)]
        assert len(kept_processes()) == 1


def test_one_that_has_died_is_told_and_the_next_profile_begins_another(kernel: StandInKernel) -> None:
    with KeptBcc() as kept, ThreadPoolExecutor() as pool:
        kernel.happens(sample())
        record_kept(kept, kernel)
        (process,) = kept_processes()
        running = pool.submit(record_kept, kept, kernel, 99, 600.0)
        time.sleep(0.3)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(ToolFailed):
            running.result()
        wait_until(lambda: not kept_processes())
        kernel.happens(sample(thread=5))
        assert (5, 1) in counted(record_kept(kept, kernel))


def test_one_that_nobody_uses_ends(kernel: StandInKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgo_agent.backends.bcc._IDLE_SECONDS", 0.5)
    with KeptBcc() as kept:
        kernel.happens(sample())
        record_kept(kept, kernel, seconds=1.0)
        assert kept_processes()
        wait_until(lambda: not kept_processes())
        kernel.happens(sample(thread=6))
        assert (6, 1) in counted(record_kept(kept, kernel))


def test_lost_samples_are_logged(kernel: StandInKernel, caplog: pytest.LogCaptureFixture) -> None:
    kernel.happens(sample(), {"what": "lose"}, {"what": "lose"})
    sampler(kernel, own_name()).record(SECONDS, Event())
    assert "samples lost: count=2" in caplog.text


def test_a_name_that_no_process_has_gives_no_profile(kernel: StandInKernel) -> None:
    kernel.happens(sample())
    with pytest.raises(NoSamples, match="no process named bank runs"):
        sampler(kernel, "bank").record(SECONDS, Event())
