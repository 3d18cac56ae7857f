"""Test the frames of addresses in real processes, also after their binary is replaced or they have ended."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import time
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest
from pgo_agent.native.elf import Elf
from pgo_agent.native.memory_maps import MemoryMaps
from pgo_agent.native.recording import Frame

from tests.agent.busy import build, needs_gcc, running
from tests.cpu_meter import children_of


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return build(tmp_path)


def code_of(pid: int, binary: Path) -> int:
    """Return the address in memory at which the code of the binary begins."""
    text = Path(f"/proc/{pid}/maps").read_text()
    (start,) = re.findall(rf"^(\w+)-\w+ r-xp .*{re.escape(str(binary))}", text, flags=re.MULTILINE)
    return int(start, 16)


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
def test_a_process_that_has_ended_has_the_layout_of_its_server(binary: Path) -> None:
    with running(binary, "forks") as server:
        start = code_of(server.pid, binary)
        unseen = next(of for of in range(2, 1 << 22) if not Path(f"/proc/{of}").exists())

        def frame_after_a_look() -> Frame:
            layouts = MemoryMaps()
            for child in children_of(server.pid):
                layouts.read(child)
            (frame,) = layouts.frames(unseen, (), (start + 0x200,))
            return frame

        deadline = time.monotonic() + 60
        while (frame := frame_after_a_look()).mapping is None:  # no child was running, or it ended too early
            assert time.monotonic() < deadline
    assert frame.mapping.start == start


@needs_gcc
def test_without_a_server_nothing_is_made_up(binary: Path) -> None:
    with running(binary) as process:
        layouts = MemoryMaps()
        layouts.read(process.pid)
        start = code_of(process.pid, binary)
        unseen = next(of for of in range(2, 1 << 22) if not Path(f"/proc/{of}").exists())
        assert layouts.frames(unseen, (), (start,)) == (Frame(start, None, ""),)


def test_a_file_that_is_called_as_a_line_looks_is_no_code(tmp_path: Path) -> None:
    """A process can map any file, and so chooses the text of its maps."""
    forged = tmp_path / f"10-{'f' * 17} r-xp 0 00:00 1 [vdso]"
    forged.write_bytes(bytes(4096))
    with forged.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ):
        layouts = MemoryMaps()
        layouts.read(os.getpid())
        assert "r-xp 0 00:00 1 [vdso]" in Path("/proc/self/maps").read_text()
        assert layouts.frames(os.getpid(), (), (0x18,)) == (Frame(0x18, None, ""),)


FORKS = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork():
        os.wait()
        os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_any_number_of_forks_is_looked_at() -> None:
    """A process that forks a process that forks: each has its parent's maps."""
    command = (sys.executable, "-c", FORKS, "60")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        last = int(process.stdout.readline())
        allowed = sys.getrecursionlimit()
        layouts = MemoryMaps()
        sys.setrecursionlimit(len(inspect.stack()) + 50)
        try:
            layouts.read(last)
        finally:
            sys.setrecursionlimit(allowed)
        text = Path(f"/proc/{process.pid}/maps").read_text()
        process.communicate()
    (start,) = re.findall(r"^(\w+)-\w+ r-xp .*/libc\.so", text, flags=re.MULTILINE)
    (frame,) = layouts.frames(process.pid, (), (int(start, 16),))
    assert frame.mapping is not None  # so the map of the first process was read, too


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
