"""Interpreters are found, and what their code objects are, as Python itself and its headers say."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import typing
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from types import CodeType, ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.native import (
    Interpreter,
    MemoryMaps,
    PythonCodes,
    PythonFrame,
    Segment,
    find_interpreter,
    mixed,
)

from tests.agent.busy import needs_gcc
from tests.agent.test_stack_truth import interpreters

LAYOUT = Path(__file__).with_name("python_layout.c")
WORD = (1 << 64) - 1
TELLS_RUNTIME = """
import ctypes
print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")), flush=True)
input()
"""


def found(pid: int) -> Interpreter | str | None:
    maps = MemoryMaps()
    maps.read(pid)
    return find_interpreter(pid, maps)


@cache
def own() -> Interpreter:
    interpreter = found(os.getpid())
    assert isinstance(interpreter, Interpreter)
    return interpreter


def headers(python: str) -> Path:
    return Path(python).parent.parent / "include" / Path(python).name


@needs_gcc
@pytest.mark.parametrize("python", [python for python in interpreters() if headers(python).is_dir()])
def test_the_layout_of_each_version_is_that_of_its_headers(python: str, tmp_path: Path) -> None:
    folders = (f"-I{headers(python)}", f"-I{headers(python)}/internal")
    subprocess.run(["gcc", *folders, LAYOUT, "-o", tmp_path / "layout"], check=True)
    lines = subprocess.run([tmp_path / "layout"], capture_output=True, check=True, text=True).stdout
    expected = {name: int(number) for name, number in (line.split() for line in lines.splitlines())}
    with subprocess.Popen(
        [python, "-c", TELLS_RUNTIME], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        runtime = int(process.stdout.readline())
        interpreter = found(process.pid)
        process.communicate(b"\n")
    assert isinstance(interpreter, Interpreter)
    assert f"python{interpreter.version[0]}.{interpreter.version[1]}" == Path(python).name
    told = interpreter.frames._asdict() | asdict(interpreter.codes)
    told["interpreters"] -= runtime
    assert told == expected


def item(code: CodeType, instruction: int, entry: int = 1) -> tuple[int, int, int, int]:
    """Return a frame as the kernel's side writes it."""
    fingerprint = (id(code.co_linetable) * 31 + hash(code.co_qualname)) & WORD
    return id(code), id(code) + own().codes.instructions + instruction, fingerprint, entry


def packed(*items: Sequence[int]) -> bytes:
    return b"".join(struct.pack("<4Q", *one) for one in items)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


@pytest.mark.parametrize("module", [json.encoder, asyncio.base_events, typing])
def test_functions_and_lines_are_those_that_python_tells(module: ModuleType) -> None:
    assert module.__file__
    code = compile(Path(module.__file__).read_text(), module.__file__, "exec")
    codes, interpreter = PythonCodes(), own()
    for each in codes_in(code):
        file, name = each.co_filename, f"py::{each.co_qualname}:{each.co_filename}"
        expected = [line or 0 for start, end, line in each.co_lines() for _ in range(start, end, 2)]
        chain = packed(*(item(each, 2 * place) for place in range(len(expected))))
        segments = codes.segments(interpreter, chain)
        assert segments is not None
        frames = [frame for segment in segments for frame in segment.frames]
        assert [frame.line for frame in frames] == expected
        assert {(frame.symbol, frame.file, frame.first_line) for frame in frames} == {
            (name, file, each.co_firstlineno)
        }


@pytest.mark.parametrize("name", ["größe", "名前", "\N{SNAKE}", "x" * 1000, "two\nlines"])
def test_names_of_all_letters_are_read(name: str) -> None:
    code = test_names_of_all_letters_are_read.__code__.replace(co_qualname=name, co_filename=f"/{name}.py")
    segments = PythonCodes().segments(own(), packed(item(code, 0)))
    assert segments
    (frame,) = segments[0].frames
    assert frame.symbol == f"py::{name[:256]}:/{name}.py".replace("\n", "?")


def test_code_that_has_become_another_or_none_has_no_name() -> None:
    code = test_names_of_all_letters_are_read.__code__
    address, at, fingerprint, entry = item(code, 0)
    read = partial(PythonCodes().segments, own())
    assert read(packed((address, at, fingerprint, entry)))
    assert read(packed((address, at, fingerprint ^ 1, entry))) is None
    for other in (id(code.co_name), id(code.co_linetable), id(type(code)), 16, WORD - 7):
        assert read(packed(item(code, 0), (other, at, fingerprint, entry))) is None


def test_as_many_codes_as_may_be_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgo_agent.native.python_stacks._MOST_CODES", 2)
    codes, interpreter = PythonCodes(), own()
    made = [compile(f"def f{number}(): pass", "made", "exec") for number in range(3)]
    chains = [packed(item(code, 0)) for code in made]
    assert [codes.segments(interpreter, chain) is not None for chain in chains] == [True, True, False]
    assert codes.segments(interpreter, chains[0])


@given(st.binary(max_size=400), st.integers(0, 1 << 31))
def test_any_table_of_lines_is_read(table: bytes, first_line: int) -> None:
    code = test_names_of_all_letters_are_read.__code__
    # Python checks nothing of these, but nobody asks it for the lines.
    changed = code.replace(co_linetable=table, co_firstlineno=min(first_line, (1 << 31) - 1))
    segments = PythonCodes().segments(own(), packed(*(item(changed, 2 * at) for at in range(50))))
    assert segments is not None
    assert all(isinstance(frame.line, int) for segment in segments for frame in segment.frames)


def python(name: str) -> PythonFrame:
    return PythonFrame(0, None, name, "/shop.py", 1, 1)


SERVE, LOAD = python("serve"), python("load")
INNER, OUTER = Segment((LOAD, LOAD), 1_150), Segment((SERVE,), 1_350)
# A leaf, the interpreter's function, a library's, the interpreter's and main, of 100 bytes of stack each.
ADDRESSES, POINTERS = (10, 20, 30, 40, 50), (1_000, 1_100, 1_200, 1_300, 1_400)


def stack(
    *segments: Segment, known: int = 5, is_whole: bool = True, trampolines: Sequence[int] = ()
) -> tuple[int | PythonFrame, ...] | None:
    at = known if is_whole else known + 1
    return mixed(
        ADDRESSES[:known], POINTERS[:at], segments, is_whole=is_whole, is_compiled=trampolines.__contains__
    )


def test_functions_of_python_stand_where_they_were_entered() -> None:
    assert stack(INNER, OUTER) == (10, LOAD, LOAD, 30, SERVE, 50)
    assert stack(INNER) == (10, LOAD, LOAD, 30, 40, 50)
    assert stack() == ADDRESSES


def test_a_trampoline_is_in_the_place_of_its_function() -> None:
    assert stack(INNER, OUTER, trampolines=(10, 30)) == (10, LOAD, LOAD, SERVE, 50)


def test_callers_beyond_a_stack_that_is_cut_short_are_those_of_python() -> None:
    assert stack(INNER, OUTER, known=3, is_whole=False) == (10, LOAD, LOAD, 30, SERVE)
    assert stack(INNER, OUTER, known=1, is_whole=False) == (10, LOAD, LOAD, SERVE)


@pytest.mark.parametrize(
    "segments",
    [
        (Segment((LOAD,), 900), OUTER),  # below the stack
        (Segment((LOAD,), 1_500),),  # above it
        (OUTER, INNER),
        (INNER, INNER),
    ],
)
def test_functions_that_are_not_of_the_stack_leave_it_as_it_was(segments: Sequence[Segment]) -> None:
    assert stack(*segments) is None


def test_a_process_that_runs_no_python_has_none() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            assert found(process.pid) == ""
        finally:
            process.kill()
    assert found(4_000_000) is None


@pytest.mark.parametrize("python", [*Path.home().glob(".pyenv/versions/3.10.*/bin/python3.10")])
def test_a_version_that_is_not_known_is_named(python: Path) -> None:
    with subprocess.Popen([python, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert found(process.pid) == "CPython before 3.11 isn't known"
        process.communicate(b"\n")
