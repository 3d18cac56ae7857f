"""Run the external programs that native profiles need: perf, llvm-symbolizer, -cxxfilt and -objcopy.

`run_tool` runs any of them to its end, and `tool_lines` reads one while it runs. `symbolize` and `demangle`
look up source lines and readable names.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from pgo_agent.errors import ToolFailed

_SYMBOLIZER = ("--output-style=JSON", "--inlines", "--functions=linkage", "--no-demangle")
_PACKAGES = {
    "perf": "linux-perf",
    **dict.fromkeys(("llvm-symbolizer", "llvm-cxxfilt", "llvm-objcopy"), "llvm"),
}


def run_tool(name: str, *arguments: str | Path, stdin: str = "") -> list[str]:
    """Run a program with `stdin` as its input, and return the lines that it prints.

    Bytes that aren't UTF-8 are surrogate escapes in both. Raises ToolFailed if the program is missing or
    fails; if a Debian package contains it, the error names the package.
    """
    try:
        done = subprocess.run(  # noqa: S603 - fixed program names, no shell
            [name, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except FileNotFoundError:
        raise _not_installed(name) from None
    if done.returncode:
        raise _failed(name, done.returncode, done.stderr)
    return done.stdout.split("\n")[:-1]


def tool_lines(name: str, *arguments: str | Path) -> Iterator[str]:
    """Yield the lines that a program prints, while it runs. Raises ToolFailed as `run_tool` does."""
    with TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as said:
        try:
            program = subprocess.Popen(  # noqa: S603 - fixed program names, no shell
                [name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                encoding="utf-8",
                errors="surrogateescape",
            )
        except FileNotFoundError:
            raise _not_installed(name) from None
        with program:
            yield from (line.removesuffix("\n") for line in program.stdout or ())
        if program.returncode:
            said.seek(0)
            raise _failed(name, program.returncode, said.read())


def _not_installed(name: str) -> ToolFailed:
    package = _PACKAGES.get(name)
    where = f" (Debian's package: {package})" if package else ""
    return ToolFailed(name, f"it is not installed{where}")


def _failed(name: str, status: int, said: str) -> ToolFailed:
    return ToolFailed(name, said.strip() or f"it ended with status {status}")


@dataclass(frozen=True, slots=True)
class Line:
    """A source line and its function, by linkage name. Unknown numbers are 0, an unknown file is ""."""

    function: str
    file: str
    line: int
    start_line: int


def symbolize(binary: Path, addresses: Sequence[int]) -> list[tuple[Line, ...]]:
    """Return the source lines at each address, innermost inlined call first; () for an unknown address.

    Addresses are the file's, not memory's: for a position-independent binary, without its load address.
    Raises ToolFailed if llvm-symbolizer is missing or fails.
    """
    requests = "".join(f"{address:#x}\n" for address in addresses)
    answers = run_tool("llvm-symbolizer", *_SYMBOLIZER, f"--obj={binary}", stdin=requests)
    return [tuple(_lines(json.loads(answer).get("Symbol", ()))) for answer in answers]


def demangle(names: Iterable[str]) -> dict[str, str]:
    """Return a dict from linkage names to demangled names. Raises ToolFailed like `symbolize`.

    A name of several lines stays as it is: no compiler writes one, but debug information may contain one.
    """
    every = list(names)
    linkage = [name for name in every if "\n" not in name]
    readable = run_tool("llvm-cxxfilt", stdin="".join(f"{name}\n" for name in linkage))
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
