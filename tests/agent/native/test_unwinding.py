"""Unwinding, by rules whose results are known, and by what files say that nobody can trust."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pgo_agent.native import MemoryMaps, Unwinder
from pgo_agent.native.dwarf_expressions import compute

PROGRAM = Path("/bin/true")
_EH_FRAME_HEADER = 0x6474E550
_RBP, _RSP, _RIP = 6, 7, 16
_COPIED_BYTES = 16 << 10
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_GETREGS, _PTRACE_DETACH = 0x4206, 0x4207, 12, 17
# Where the registers are in the kernel's user_regs_struct, in DWARF's order.
_IN_DWARF_ORDER = (10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16)
_WAITING = "import signal; print('waits', flush=True); signal.pause()"


def registers(rip: int, rsp: int, rbp: int = 0) -> list[int]:
    """Return registers, 0 but for these."""
    now = [0] * 17
    now[_RIP], now[_RSP], now[_RBP] = rip, rsp, rbp
    return now


@pytest.fixture
def unwinder() -> Iterator[Unwinder]:
    with Unwinder() as unwinder:
        if not unwinder.start():
            pytest.skip(unwinder.obstacle)
        yield unwinder


@contextmanager
def mapped(path: Path) -> Iterator[tuple[MemoryMaps, range]]:
    """Map a file into this process as code; yield the maps, and its addresses."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC),
    ):
        maps = MemoryMaps()
        maps.read(os.getpid())
        found = next(
            area for area in maps.areas(os.getpid()) if area.mapping and area.mapping.file == str(path)
        )
        yield maps, range(found.start, found.end)


def code_of(program: bytes) -> range:
    """Return where the code of an ELF file is, which begins with its initialization."""
    at, count = struct.unpack_from("<32xQ16xH", program)
    for place in range(at, at + 56 * count, 56):
        kind, flags, offset, _, _, size = struct.unpack_from("<IIQQQQ", program, place)
        if (kind, flags & 1) == (1, 1):
            return range(offset, offset + size)
    raise AssertionError


def call_frames_of(program: bytes) -> range:
    """Return where the call frame information of an ELF file is: behind the table for looking it up."""
    at, count = struct.unpack_from("<32xQ16xH", program)
    for place in range(at, at + 56 * count, 56):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", program, place)
        if kind == _EH_FRAME_HEADER:
            return range(offset, offset + 5 * size)
    raise AssertionError


def test_a_thread_that_waits_is_followed_to_its_start(unwinder: Unwinder) -> None:
    """The functions are Python's and libc's, of which neither has frame pointers everywhere."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", _WAITING], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        now, stack = stopped(process.pid)
        maps = MemoryMaps()
        maps.read(process.pid)
        addresses, is_whole = unwinder.unwind(process.pid, maps, now, stack)
        process.kill()
    assert is_whole
    assert addresses[0] == now[_RIP]
    assert len(addresses) > 8
    frames = maps.frames(process.pid, (), addresses)
    assert len(frames) == len(addresses)
    files = [Path(frame.mapping.file).name if frame.mapping else "" for frame in frames]
    assert files[0].startswith("libc")
    assert files[-1].startswith("python")  # `_start`
    # The same, from what is known by now, and with less of the stack.
    assert unwinder.unwind(process.pid, maps, now, stack) == (addresses, True)
    less, is_whole = unwinder.unwind(process.pid, maps, now, stack[:64])
    assert not is_whole
    assert addresses[: len(less)] == less


def stopped(pid: int) -> tuple[list[int], bytes]:
    """Return a process's registers in DWARF's order, and the top of its stack, as while it waits."""
    trace = ctypes.CDLL(None).ptrace
    trace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    read = (ctypes.c_uint64 * 32)()
    assert trace(_PTRACE_SEIZE, pid, None, None) == 0
    assert trace(_PTRACE_INTERRUPT, pid, None, None) == 0
    os.waitpid(pid, 0x40000000)
    assert trace(_PTRACE_GETREGS, pid, None, read) == 0
    now = [read[place] for place in _IN_DWARF_ORDER]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(now[_RSP])
        stack = memory.read(_COPIED_BYTES)
    trace(_PTRACE_DETACH, pid, None, None)
    return now, stack


def test_code_without_call_frame_information_is_followed_by_frame_pointers(
    unwinder: Unwinder, tmp_path: Path
) -> None:
    """A program may compile such code while it runs. By the ABI, a frame pointer of 0 is a thread's start."""
    path = tmp_path / "code"
    path.write_bytes(bytes(4096))
    with mapped(path) as (maps, code):
        stack = struct.pack("<6Q", 7, 7, 0x7010 + 16, code[100], 0, code[200])
        now = registers(rip=code[1], rsp=0x7000, rbp=0x7010)
        assert unwinder.unwind(os.getpid(), maps, now, stack) == ([code[1], code[100], code[200]], True)
        for lost in (
            0x7018,
            0x7020,
            0x9000,
            0x6000,
            0x7011,
        ):  # no code there, the stack's end, none, misaligned
            now[_RBP] = lost
            assert unwinder.unwind(os.getpid(), maps, now, stack[:32]) == ([code[1]], False)


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_is_no_code_has_no_callers(unwinder: Unwinder, *, has_ended: bool) -> None:
    maps, pid = MemoryMaps(), 1 << 30 if has_ended else os.getpid()
    maps.read(pid)
    now = registers(rip=0x10, rsp=(1 << 64) - 8, rbp=(1 << 64) - 8)
    assert unwinder.unwind(pid, maps, now, b"\x01" * 100) == ([0x10], False)


def test_a_map_that_another_thread_reads_meanwhile_is_no_fault(unwinder: Unwinder) -> None:
    class Changing(MemoryMaps):
        """A map that is another one each time it is asked for."""

        reads = 0

        def text(self, pid: int) -> str:
            self.reads += 1
            return f"{super().text(pid)}{self.reads}"

    with mapped(PROGRAM.resolve()) as (_, addresses):
        maps = Changing()
        maps.read(os.getpid())
        at = addresses.start + code_of(PROGRAM.read_bytes()).start
        found, _ = unwinder.unwind(os.getpid(), maps, registers(rip=at, rsp=1 << 20), bytes(64))
        assert found[0] == at


def test_there_are_seventeen_registers(unwinder: Unwinder) -> None:
    with pytest.raises(ValueError, match="16 registers, not 17"):
        unwinder.unwind(1, MemoryMaps(), [0] * 16, b"")


@pytest.mark.parametrize("files", [40, pytest.param(500, marks=pytest.mark.exhaustive)])
def test_changed_call_frame_information_does_no_harm(unwinder: Unwinder, tmp_path: Path, files: int) -> None:
    """A file is whatever its user has written: no error, no end of the agent, and no endless loop."""
    program = PROGRAM.read_bytes()
    frames, code = call_frames_of(program), code_of(program)
    chance = random.Random(files)  # noqa: S311 - the same each time
    found = 0
    for number in range(files):
        changed = bytearray(program)
        for _ in range(chance.choice((1, 5, 50, 500))):
            changed[chance.randrange(frames.start, min(frames.stop, len(program)))] = chance.randrange(256)
        path = tmp_path / str(number)
        path.write_bytes(changed)
        with mapped_whole(path) as (maps, start):
            for _ in range(20):
                at = [start + chance.randrange(code.start, code.stop) for _ in range(64)]
                stack = b"".join(
                    struct.pack("<Q", chance.choice((*at, 0x7000 + 8 * chance.randrange(64)))) for _ in at
                )
                now = [chance.choice((0, 0x7000, 0x7100, 1 << 63, at[0])) for _ in range(17)]
                now[_RSP], now[_RIP] = 0x7000, at[0]
                addresses, _ = unwinder.unwind(os.getpid(), maps, now, stack)
                assert addresses[0] == at[0]
                assert len(addresses) <= 512
                found += len(addresses) > 2
        path.unlink()
    assert found  # some of it is still right


@contextmanager
def mapped_whole(path: Path) -> Iterator[tuple[MemoryMaps, int]]:
    with mapped(path) as (maps, code):
        yield maps, code.start


def test_a_file_that_kills_libdw_is_not_asked_for_again(
    unwinder: Unwinder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libdw is in a process of its own, so only that ends; another one answers for other files."""
    killer = tmp_path / "cfi_program.py"
    killer.write_text(
        "import json, os, socket\n"
        "with socket.socket(fileno=os.dup(0)) as agent:\n"
        "    agent.send(b'true')\n"
        "    while True:\n"
        "        text, *_ = socket.recv_fds(agent, 256, 1)\n"
        "        if not text or json.loads(text)[1:]: os.kill(os.getpid(), 11)\n"
        "        agent.send(b'true')\n"
    )
    started = []
    popen = subprocess.Popen

    def count(*arguments: object, **named: object) -> object:
        started.append(arguments)
        return popen(*arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr("pgo_agent.native.unwind_rules._PROGRAM", killer)
    monkeypatch.setattr("pgo_agent.native.unwind_rules.subprocess.Popen", count)
    path = tmp_path / "true"
    path.write_bytes(PROGRAM.read_bytes())
    code = code_of(path.read_bytes())
    unwinder.close()
    with mapped_whole(path) as (maps, start):
        for more in range(20):
            now = registers(rip=start + code.start + 16 * more, rsp=0x7000)
            assert len(unwinder.unwind(os.getpid(), maps, now, bytes(64))[0]) == 1
    assert len(started) <= 2


def test_expressions_compute_as_dwarf_says() -> None:
    """Compute that of a procedure linkage table, which depends on how far an entry has come, and others."""
    codes = (0x80, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22)
    entry = ((0x77, 8, 0), *((code, 0, 0) for code in codes))
    now = registers(0x1230, 0x7000)
    assert compute(entry, now, 0, lambda _: 0) == 0x7008
    now[_RIP] = 0x123B
    assert compute(entry, now, 0, lambda _: 0) == 0x7010
    words = {0x7000: 0x7100, 0x6FF8: 5}
    assert compute(((0x77, (1 << 64) - 8, 0), (0x06, 0, 0)), now, 0, words.__getitem__) == 5
    assert compute(((0x9C, 0, 0), (0x23, 16, 0)), now, 0x7000, words.__getitem__) == 0x7010
    assert compute(((0x92, 7, (1 << 64) - 16), (0x12, 0, 0), (0x1C, 0, 0)), now, 0, words.__getitem__) == 0
    assert compute(((0x09, (1 << 64) - 1, 0), (0x1F, 0, 0)), now, 0, words.__getitem__) == 1
    for wrong in ((0x28, 0, 0),), ((0x06, 0, 0),), ((0x92, 99, 0),), ((0x14, 0, 0),), ():
        with pytest.raises((ValueError, IndexError)):
            compute(wrong, now, 0, words.__getitem__)


def test_what_keeps_it_from_reading_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libdw, frame pointers are followed."""
    without = tmp_path / "cfi_program.py"
    said = "libdw.so.1: cannot open shared object file"
    without.write_text(f"import os, socket\nsocket.socket(fileno=os.dup(0)).send(b'\"{said}\"')\n")
    monkeypatch.setattr("pgo_agent.native.unwind_rules._PROGRAM", without)
    path = tmp_path / "code"
    path.write_bytes(bytes(4096))
    with Unwinder() as unwinder, mapped(path) as (maps, code):
        assert not unwinder.start()
        assert unwinder.obstacle == f"libdw: it is not installed (Debian's package: libdw1): {said}"
        now = registers(code[1], 0x7000, 0x7000)
        assert unwinder.unwind(os.getpid(), maps, now, struct.pack("<2Q", 0, code[9])) == (
            [code[1], code[9]],
            True,
        )
