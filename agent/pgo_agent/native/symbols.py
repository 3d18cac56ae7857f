"""Addresses of a binary → the source lines there, inlined calls and all, from its debug information."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgo_agent.native.tool import run_tool

_SYMBOLIZER = ("--output-style=JSON", "--inlines", "--functions=linkage", "--no-demangle")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a function, by its linkage name; numbers are 0, and `file` is empty, if they aren't known."""

    function: str
    file: str
    line: int
    start_line: int


def symbolize(binary: Path, addresses: Sequence[int]) -> list[tuple[Line, ...]]:
    """The lines at each address, the innermost first; none if nothing is known of it.

    Addresses are those of the file, not of memory: what a position-independent binary has without its base.

    Raises ToolFailed if llvm-symbolizer is missing or fails.
    """
    asked = "".join(f"{address:#x}\n" for address in addresses)
    answered = run_tool("llvm-symbolizer", *_SYMBOLIZER, f"--obj={binary}", given=asked)
    return [tuple(_lines(json.loads(answer).get("Symbol", ()))) for answer in answered]


def demangled(names: Iterable[str]) -> dict[str, str]:
    """Return the demangled name of each linkage name. Raises ToolFailed as `symbolize`.

    No compiler writes a name of several lines, but debug information may have one; that stays as it is.
    """
    every = list(names)
    linkage = [name for name in every if "\n" not in name]
    readable = run_tool("llvm-cxxfilt", given="".join(f"{name}\n" for name in linkage))
    return dict(zip(every, every, strict=True)) | dict(zip(linkage, readable, strict=True))


def _lines(symbols: Iterable[dict[str, str | int]]) -> Iterable[Line]:
    for symbol in symbols:
        if symbol["FunctionName"]:
            yield Line(
                str(symbol["FunctionName"]),
                str(symbol["FileName"]),
                int(symbol["Line"]),
                int(symbol["StartLine"]),
            )
