"""Test the frames of addresses in real processes, also after their binary is replaced or they have ended."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest
from pgo_agent.native.elf import Elf
from pgo_agent.native.memory_maps import MemoryMaps
from pgo_agent.native.recording import Frame

from tests.agent.busy import build, needs_gcc, running


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return build(tmp_path)


def code_of(pid: int, binary: Path) -> int:
    """Return the address in memory at which the code of the binary begins."""
    text = Path(f"/proc/{pid}/maps").read_text()
    (start,) = re.findall(rf"^(\w+)-\w+ r-xp .*{re.escape(str(binary))}", text, flags=re.MULTILINE)
    return int(start, 16)


def unused_pids() -> Iterator[int]:
    """Yield pids that no process has."""
    return (pid for pid in range(2, 1 << 22) if not Path(f"/proc/{pid}").exists())


@needs_gcc
def test_a_frame_is_in_the_mapping_of_its_file(binary: Path) -> None:
    with running(binary) as process:
        start = code_of(process.pid, binary)
        layouts = MemoryMaps()
        layouts.read(process.pid)
    leaf, caller = layouts.frames(process.pid, (), (start + 0x200, start + 0x300, 0x10))
    assert leaf.mapping is not None
    assert (leaf.mapping.file, leaf.mapping.start) == (str(binary), start)
    assert leaf.mapping.build_id == Elf.read(binary).build_id
    assert leaf.mapping.size % 4096 == leaf.mapping.offset % 4096 == 0
    # A call is before the return address; an address outside of code is no caller.
    assert (leaf.address, caller.address) == (start + 0x200, start + 0x2FF)
    assert layouts.frames(process.pid, (), (0x10,)) == (Frame(0x10, None, ""),)


@needs_gcc
def test_one_binary_is_one_mapping_in_all_its_processes(binary: Path) -> None:
    with running(binary) as first, running(binary) as second:
        layouts = MemoryMaps()
        frames: list[Frame] = []
        for process in (first, second):
            layouts.read(process.pid)
            frames += layouts.frames(process.pid, (), (code_of(process.pid, binary) + 0x200,))
    assert frames[0] == frames[1]


# Only root can read a file that was deleted from a process.
@needs_gcc
@pytest.mark.system("root")
def test_a_binary_that_was_replaced_has_the_build_id_of_what_runs(binary: Path) -> None:
    old = Elf.read(binary).build_id
    with running(binary) as process:
        start = code_of(process.pid, binary)
        binary.unlink()
        shutil.copy("/bin/ls", binary)
        layouts = MemoryMaps()
        layouts.read(process.pid)
        ((frame,),) = (layouts.frames(process.pid, (), (start,)),)
    assert frame.mapping is not None
    assert (frame.mapping.file, frame.mapping.build_id) == (str(binary), old)
    # The process has ended, so its file is unknown, and isn't assumed to be the one at its path.
    late = MemoryMaps()
    late.read(process.pid)
    assert late.frames(process.pid, (), (start,)) == (Frame(start, None, ""),)


@needs_gcc
def test_a_process_that_has_ended_has_the_layout_of_the_one_that_it_was_forked_from(binary: Path) -> None:
    """Each of two servers has processes of its own, one of them forked by another that has ended."""
    with running(binary) as first, running(binary) as second:
        layouts = MemoryMaps()
        ended = unused_pids()
        starts: dict[int, int] = {}
        for server in (first, second):
            child, grandchild = next(ended), next(ended)
            layouts.read(child, server.pid)
            layouts.read(grandchild, child, server.pid)
            starts |= dict.fromkeys((child, grandchild), code_of(server.pid, binary))
    for pid, start in starts.items():
        (frame,) = layouts.frames(pid, (), (start + 0x200,))
        assert frame.mapping is not None
        assert frame.mapping.file == str(binary)
        assert not layouts.is_lost(pid, (), (start,))


@needs_gcc
def test_of_a_process_that_is_not_known_nothing_is_made_up(binary: Path) -> None:
    with running(binary) as process:
        layouts = MemoryMaps()
        layouts.read(process.pid)
        start = code_of(process.pid, binary)
        ended = unused_pids()
        first, second = next(ended), next(ended)
        layouts.read(first, second)
        layouts.read(second, first)  # the numbers came back
        for pid in (first, next(ended)):
            assert layouts.frames(pid, (), (start,)) == (Frame(start, None, ""),)
            assert layouts.is_lost(pid, (), (start,))
            assert layouts.is_lost(pid, (), ())
            assert not layouts.is_lost(pid, (1 << 63,), ())  # as a thread of the kernel


def test_a_file_that_is_called_as_a_line_looks_is_no_code(tmp_path: Path) -> None:
    """A process can map any file, and so chooses the text of its maps."""
    forged = tmp_path / f"10-{'f' * 17} r-xp 0 00:00 1 [vdso]"
    forged.write_bytes(bytes(4096))
    with forged.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ):
        layouts = MemoryMaps()
        layouts.read(os.getpid())
        assert "r-xp 0 00:00 1 [vdso]" in Path("/proc/self/maps").read_text()
        assert layouts.frames(os.getpid(), (), (0x18,)) == (Frame(0x18, None, ""),)


def test_the_kernel_is_said_once_and_its_callers_are_calls() -> None:
    symbols = {
        name: int(address, 16)
        for address, kind, name in (
            line.split()[:3] for line in Path("/proc/kallsyms").read_text().splitlines()
        )
        if kind in "tT"
    }
    if not symbols.get("do_syscall_64"):
        pytest.skip("the kernel hides its addresses from this user")
    at = symbols["do_syscall_64"]
    frames = MemoryMaps().frames(1, (at + 8, at + 8, at + 16), ())
    assert [(frame.address, frame.symbol) for frame in frames] == [
        (at + 8, "do_syscall_64"),
        (at + 15, "do_syscall_64"),
    ]
    assert frames[0].mapping is not None
    assert frames[0].mapping.build_id in Path("/sys/kernel/notes").read_bytes().hex()
    assert len(frames[0].mapping.build_id) == 40
