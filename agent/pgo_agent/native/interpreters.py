"""Find CPython in a process, and where in its memory it keeps its threads, frames and code objects.

The interpreter's structures differ between versions. From 3.13 on, it says where their members are
(`_Py_DebugOffsets`, Include/internal/pycore_runtime.h); for 3.11 and 3.12 there is a table here, of their
headers. What is read there is checked: a program can have anything in its memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pgo_agent.errors import NotReadable
from pgo_agent.native.elf import Elf, symbol_addresses
from pgo_agent.native.memory_maps import EXECUTABLE_LINE, MemoryMaps
from pgo_agent.stack_reader import Memory

_VERSION, _RUNTIME, _CODE_TYPE = "Py_Version", "_PyRuntime", "PyCode_Type"
_NAMES = (_VERSION, _RUNTIME, _CODE_TYPE)
_TYPE_NAME = 24  # where a type has the address of its name
_COOKIE = b"xdebugpy"
# Of struct _Py_DebugOffsets of 3.13, up to what is read of strings.
_OFFSETS = struct.Struct("<8s70Q")
_FREE_THREADED = 1
# Its words, without the first.
_TOLD = {"interpreters": 4, "next_interpreter": 7, "threads": 8, "next_thread": 20, "current": 22}
_TOLD |= {"thread_id": 23, "previous": 28, "code": 29, "instruction": 30, "entry": 32, "filename": 34}
_TOLD |= {"qualname": 36, "linetable": 37, "first_line": 38, "instructions": 42, "ascii_size": 69}
_MOST_OFFSET = 1 << 20
_PAGE = 4096
_MOST_FILES = 256
_files: dict[tuple[int, ...], _File] = {}  # what was read of files, by what tells one from another
_CSTACK = 3  # the owner of a frame by which C enters the interpreter (FRAME_OWNED_BY_CSTACK)


class FrameLayout(NamedTuple):
    """Where frames are, in the order of `enum layout` in backends/bcc_python.py, which finds them.

    `interpreters` is the address of the pointer to the first; all others are offsets in bytes. In 3.11 and
    3.12, `current` of a thread leads to a structure on the C stack (`through`), which has the frame at
    `frame`, and the next one outwards at `outer`. A frame is the first of its C function if its byte at
    `entry` is `entry_value`; before 3.12, that is a frame of a Python function (`has_code`).
    """

    interpreters: int
    next_interpreter: int
    threads: int
    next_thread: int
    thread_id: int
    current: int
    through: int
    frame: int
    outer: int
    code: int
    instruction: int
    previous: int
    entry: int
    entry_value: int
    has_code: int
    qualname: int
    linetable: int
    hash: int


@dataclass(frozen=True, slots=True)
class CodeLayout:
    """Where the members of code objects and strings are, as offsets in bytes."""

    filename: int
    qualname: int
    linetable: int
    first_line: int
    instructions: int
    ascii_size: int
    compact_size: int


@dataclass(frozen=True, slots=True)
class Interpreter:
    """CPython in a process: its version, such as (3, 12), and where it keeps what is read of it."""

    pid: int
    memory: Memory
    version: tuple[int, int]
    frames: FrameLayout
    codes: CodeLayout
    code_type: int  # the address of the type of code objects


# By version: Include/internal/pycore_{runtime,interp,frame,code}.h, cpython/{pystate,code,unicodeobject}.h.
_KNOWN = {
    (3, 11): (
        FrameLayout(40, 0, 16, 8, 152, 56, 1, 8, 16, 32, 56, 48, 68, 1, 1, 128, 136, 24),
        CodeLayout(112, 128, 136, 72, 184, 48, 72),
    ),
    (3, 12): (
        FrameLayout(40, 0, 72, 8, 136, 56, 1, 0, 8, 0, 56, 8, 70, _CSTACK, 0, 128, 136, 24),
        CodeLayout(112, 128, 136, 68, 192, 40, 56),
    ),
}
_TELLS_OFFSETS = (3, 13)
# What it doesn't say.
_TOLD_FRAMES = FrameLayout(*[0] * len(FrameLayout._fields))._replace(entry_value=_CSTACK, hash=24)


def find_interpreter(pid: int, maps: MemoryMaps) -> Interpreter | str | None:
    """Return the interpreter that a process runs; "" if it runs none, else why it can't be read.

    Returns None if the process has ended. `maps` has read its memory map.
    """
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink())
        memory = Memory(pid)
        for symbols in _symbols_of(pid, program, maps.text(pid)):
            found = _interpreter(pid, memory, symbols)
            if found:
                return found
    except PermissionError:
        return "its memory can't be read"
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:  # what looks like an interpreter is none
        return ""
    return ""


def _interpreter(pid: int, memory: Memory, symbols: dict[str, int]) -> Interpreter | str:
    """Return the interpreter with these symbols; "" if it is none. Raises OSError."""
    if _VERSION not in symbols:
        return "CPython before 3.11 isn't known"
    number = memory.live(symbols[_VERSION])
    version = number >> 24 & 0xFF, number >> 16 & 0xFF
    named = memory.read(memory.live(symbols[_CODE_TYPE] + _TYPE_NAME), 5)
    if number >> 32 or version[0] != 3 or named != b"code\0":
        return ""
    runtime = symbols[_RUNTIME]
    if version in _KNOWN:
        frames, codes = _KNOWN[version]
        frames = frames._replace(interpreters=runtime + frames.interpreters)
        return Interpreter(pid, memory, version, frames, codes, symbols[_CODE_TYPE])
    if version == _TELLS_OFFSETS:
        told = _told_layouts(memory.read(runtime, _OFFSETS.size), runtime)
        if not told:
            return "CPython 3.13 without the interpreter's lock isn't known"
        return Interpreter(pid, memory, version, *told, symbols[_CODE_TYPE])
    return f"CPython {version[0]}.{version[1]} isn't known, only 3.11 to 3.13"


def _told_layouts(told: bytes, runtime: int) -> tuple[FrameLayout, CodeLayout] | None:
    """Return the layouts that CPython 3.13 says that it has; None if it is another build."""
    cookie, *numbers = _OFFSETS.unpack(told)
    if cookie != _COOKIE or numbers[_FREE_THREADED] or max(numbers[2:]) > _MOST_OFFSET:
        return None
    of = {name: numbers[place] for name, place in _TOLD.items()}
    ascii_size, qualname, linetable = of.pop("ascii_size"), of["qualname"], of["linetable"]
    codes = CodeLayout(
        of.pop("filename"),
        qualname,
        linetable,
        of.pop("first_line"),
        of.pop("instructions"),
        ascii_size,
        ascii_size + 16,
    )
    return _TOLD_FRAMES._replace(**of | {"interpreters": runtime + of["interpreters"]}), codes


def _symbols_of(pid: int, program: str, text: str) -> Iterator[dict[str, int]]:
    """Yield the addresses of the interpreter's symbols in the memory of a process, by file that has them.

    `text` is the memory map. Raises OSError.
    """
    passed = set[str]()
    for line in EXECUTABLE_LINE.finditer(text):
        file = line["file"]
        if file not in passed and (file == program or "/libpython" in file):
            passed.add(file)
            # The file that is mapped, also if it is another one's by now; only some may follow that link.
            for path in (f"/proc/{pid}/map_files/{line['range']}", f"/proc/{pid}/root{file}"):
                with suppress(NotReadable, OSError):
                    known = _symbols_in(Path(path))
                    if known.addresses.keys() >= {_RUNTIME, _CODE_TYPE}:
                        moved = _moved(int(line["start"], 16), int(line["offset"], 16), known.elf)
                        yield {name: address + moved for name, address in known.addresses.items()}
                    break


class _File(NamedTuple):
    elf: Elf
    addresses: dict[str, int]


def _symbols_in(path: Path) -> _File:
    """Return what a file has. Raises NotReadable or OSError."""
    status = path.stat()
    identity = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
    if identity not in _files:
        if len(_files) >= _MOST_FILES:
            _files.clear()
        _files[identity] = _File(Elf.read(path), symbol_addresses(path, _NAMES))
    return _files[identity]


def _moved(start: int, offset: int, elf: Elf) -> int:
    """Return how much more addresses in memory are than in a file, by where it is mapped. Raises OSError."""
    for segment in elf.segments:
        before = segment.offset - offset
        if 0 <= before < _PAGE:
            return start - (segment.address - before)
    raise OSError(0, "the file isn't mapped as it says")
