"""The table of `go tool pprof -top`: the flat and the cumulative value of each function."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

from pprof_proto.profile_pb2 import Profile

from tests.oracle.oracle import go_environment, go_tool

if TYPE_CHECKING:
    from pathlib import Path

Table = dict[str, tuple[int, int]]

# Show every function, and exact values: -topproto writes the numbers that -top shows.
_WHOLE = ("-nodefraction=0", "-edgefraction=0", "-nodecount=0", "-symbolize=none")


def pprof(profile: bytes, folder: Path, *options: str) -> str:
    """Return what `go tool pprof` prints for a profile."""
    (folder / "profile").write_bytes(profile)
    # Do not use settings or binaries of this machine's user.
    environment = {**go_environment(), "PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": os.devnull}
    command: list[str | Path] = [go_tool("pprof"), *_WHOLE, *options, "profile"]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def go_top(profile: bytes, folder: Path, sample_type: str, unit: str, *options: str) -> Table:
    """Return Go's table for one sample type: (flat, cumulative) of each function, in the given unit."""
    shown = f"-sample_index={sample_type}", f"-unit={unit}", *options
    pprof(profile, folder, "-topproto", "-output=top", *shown)
    top = Profile.FromString(gzip.decompress((folder / "top").read_bytes()))
    assert [top.string_table[column.type] for column in top.sample_type] == [b"cum", b"flat"]
    names = {function.id: top.string_table[function.name].decode() for function in top.function}
    functions = {location.id: names[location.line[0].function_id] for location in top.location}
    return {functions[row.location_id[0]]: (row.value[1], row.value[0]) for row in top.sample}


def go_flat_by_file(profile: bytes, folder: Path, sample_type: str) -> dict[str, int]:
    """Return Go's flat value of each source file, for a sample type in ns.

    -topproto leaves out file names. -top has several rows for a file, so cumulative values can't be read.
    """
    text = pprof(profile, folder, "-top", "-files", f"-sample_index={sample_type}", "-unit=ns")
    rows = re.findall(r"^ *(\d+)(?:ns)? +\S+% +\S+% +\S+ +\S+%  (\S+)", text, flags=re.MULTILINE)
    flat: Counter[str] = Counter()
    for value, name in rows:
        flat[name] += int(value)
    return dict(+flat)
