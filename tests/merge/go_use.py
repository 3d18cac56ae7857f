"""Reading what `go tool pprof` says of one function: -peek has its calls, -lines and -list its lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tests.merge.go_top import pprof

if TYPE_CHECKING:
    from pathlib import Path

_CALL = re.compile(r"^ *(\d+)(?:ns)? +\S+% \| +(.*)$")
_SELF = re.compile(r"^ *(\d+)(?:ns)? +\S+% +\S+% +(\d+)(?:ns)? +\S+% +\| (.*)$")
_INLINE = " (inline)"
_TOP = re.compile(r"^ *(\d+)(?:ns)? +\S+% +\S+% +(\d+)(?:ns)? +\S+%  (.*)$", re.MULTILINE)
_NOTE = re.compile(r" \((partial-)?inline\)$")
_LISTED = re.compile(r"^ +(\S+) +(\S+) +(\d+):", re.MULTILINE)

# The value of each call, and whether it is inlined, by the other function's name.
Calls = dict[str, tuple[int, bool]]


class Peek(NamedTuple):
    """The calls of a function as -peek has them, in ns."""

    flat: int
    cum: int
    callers: Calls
    callees: Calls


def go_peek(profile: bytes, folder: Path, name: str) -> Peek:
    """Return what -peek says of the function with this name."""
    text = pprof(profile, folder, f"-peek=^{re.escape(name)}$", "-sample_index=cpu", "-unit=ns")
    (found,) = go_tree(text).values()
    return found


def go_tree(text: str) -> dict[str, Peek]:
    """Return what -peek or -tree prints, by the nodes' names. Names of lines have the file and the line."""
    found: dict[str, Peek] = {}
    for block in text.split("-----+-------------\n")[1:]:
        callers, callees = Calls(), Calls()
        values: tuple[int, int, str] | None = None
        for line in block.splitlines():
            if own := _SELF.match(line):
                values = int(own[1]), int(own[2]), own[3]
            elif call := _CALL.match(line):
                name = call[2].removesuffix(_INLINE)
                (callees if values else callers)[name] = int(call[1]), call[2].endswith(_INLINE)
        if values:
            flat, cum, name = values
            found[name.strip()] = Peek(flat, cum, callers, callees)
    return found


def go_lines(profile: bytes, folder: Path, *options: str) -> dict[str, tuple[int, int]]:
    """Return (flat, cumulative) in ns of each `function file:line`."""
    text = pprof(profile, folder, "-top", "-lines", "-sample_index=cpu", "-unit=ns", *options)
    rows = ((_NOTE.sub("", name), int(flat), int(cum)) for flat, cum, name in _TOP.findall(text))
    return {name: (flat, cum) for name, flat, cum in rows}


def go_list(profile: bytes, folder: Path, name: str) -> dict[int, tuple[int, int]]:
    """Return (flat, cumulative) in ns of each line of a function, whose source is in a file."""
    options = f"-list=^{re.escape(name)}$", "-sample_index=cpu", "-unit=ns"
    text = pprof(profile, folder, *options, f"-source_path={folder}")
    return {
        int(line): (_nanos(flat), _nanos(cum))
        for flat, cum, line in _LISTED.findall(text)
        if (flat, cum) != (".", ".")
    }


def go_trees(profile: bytes, folder: Path) -> dict[str, Peek]:
    """Return what -peek says of every function, by its name."""
    return go_tree(pprof(profile, folder, "-tree", "-sample_index=cpu", "-unit=ns"))


def _nanos(text: str) -> int:
    return 0 if text == "." else int(text.removesuffix("ns"))
