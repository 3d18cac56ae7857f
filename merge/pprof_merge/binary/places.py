"""Places: where a profile's locations are in a program, and their source lines and discriminators.

llvm-symbolizer reads the lines.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from pprof_merge.analysis.sample_paths import MAX_DEPTH, Path, offset_of, readable_name
from pprof_merge.binary.elf import Binary, Function
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits
from pprof_merge.profile import Profile

_LIBC = ctypes.CDLL(None)
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_NO_LINES = "it has no debug lines; build it with -g -fdebug-info-for-profiling"


@dataclass(frozen=True, slots=True)
class Frame:
    """A function, a line in it, the function's first line, and the discriminator of DWARF."""

    name: bytes
    line: int
    start_line: int
    discriminator: int


class AddressesIn(dict[int, int | None]):
    """Addresses of locations in the program, by row, computed on first use; None if it is elsewhere."""

    def __init__(self, profile: Profile, binary: Binary) -> None:
        super().__init__()
        self._profile, self._binary = profile, binary
        self._is_own = [_is_of(profile, row, binary) for row in range(len(profile.mappings))]

    def __missing__(self, location: int) -> int | None:
        mappings, locations = self._profile.mappings, self._profile.locations
        mapping, found = int(locations.mapping[location]), None
        if mapping >= 0 and self._is_own[mapping]:
            moved = int(mappings.start[mapping]) - int(mappings.offset[mapping])
            found = self._binary.address(int(locations.address[location]) - moved)
        self[location] = found
        return found


def _is_of(profile: Profile, mapping: int, binary: Binary) -> bool:
    """Return whether a mapping is of the program, by its build id."""
    build_id = profile.strings[int(profile.mappings.build_id[mapping])].decode(errors="replace")
    return bool(build_id) and build_id == binary.build_id


def functions_at(binary: Binary, at: Iterable[int], limits: BinaryLimits) -> list[Function]:
    """Return the functions with these addresses, in order.

    Raises BinaryInvalid if there are none, or if they are too large.
    """
    functions = {found.start: found for found in map(binary.function, at) if found is not None}
    if not functions:
        raise BinaryInvalid("no sample is in a function of this program; give the one that was profiled")
    size = sum(len(function.code) for function in functions.values())
    if size > limits.code_bytes:
        raise BinaryInvalid(f"the sampled functions have {size:,} bytes, more than {limits.code_bytes:,}")
    return [functions[start] for start in sorted(functions)]


def frames_of(path: str, addresses: Sequence[int], limits: BinaryLimits) -> dict[int, list[Frame]]:
    """Return the frames of each address, innermost first; more than one where calls are inlined.

    Raises BinaryInvalid if llvm-symbolizer is missing or fails.
    """
    tool = shutil.which("llvm-symbolizer")
    if tool is None:
        raise BinaryInvalid("llvm-symbolizer isn't on PATH, and reads its debug lines; install LLVM's tools")
    command = [
        tool,
        "--output-style=JSON",
        "--inlines",
        "--functions=linkage",
        "--no-demangle",
        f"--obj={path}",
    ]

    def bound() -> None:
        seconds = ceil(limits.symbolizer_seconds)
        for kind, most in (
            (resource.RLIMIT_AS, limits.symbolizer_bytes),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_CORE, 0),
        ):
            _, allowed = resource.getrlimit(kind)
            bounded = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
            resource.setrlimit(kind, (bounded, bounded))
        # It ends with this process, which may be killed: a damaged program can make it wait or run for ever.
        _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)

    try:
        finished = subprocess.run(  # noqa: S603
            command,
            input="".join(f"{address:#x}\n" for address in addresses).encode(),
            capture_output=True,
            env={**os.environ, "DEBUGINFOD_URLS": ""},  # nothing is fetched from the network
            timeout=limits.symbolizer_seconds,
            check=False,
            preexec_fn=bound,
        )
    except subprocess.TimeoutExpired:
        raise BinaryInvalid(f"llvm-symbolizer took over {limits.symbolizer_seconds:g} s") from None
    lines = finished.stdout.splitlines()
    if finished.returncode or len(lines) != len(addresses):
        said = finished.stderr.decode(errors="replace").strip()[:300] or "it stopped early"
        raise BinaryInvalid(f"llvm-symbolizer fails: {said}")
    try:
        return {
            address: list(_frames(json.loads(line).get("Symbol") or []))
            for address, line in zip(addresses, lines, strict=True)
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BinaryInvalid(
            f"llvm-symbolizer is too old or too new to be read ({error}); LLVM 14 works"
        ) from error


def _frames(symbols: list[dict[str, Any]]) -> Iterable[Frame]:
    for symbol in symbols:
        name = str(symbol["FunctionName"]).encode()
        yield Frame(name, symbol["Line"], symbol["StartLine"], symbol["Discriminator"])


def path_of(frames: list[Frame]) -> Path:
    """Return the path of frames, innermost first; empty if it is too long, or a line or name is missing."""
    if len(frames) > MAX_DEPTH:
        return ()
    path = []
    for frame in reversed(frames):
        name = readable_name(frame.name)
        if frame.line <= 0 or frame.start_line <= 0 or not name:
            return ()
        place = offset_of(frame.line, frame.start_line), base_discriminator(frame.discriminator)
        path.append((name, place))
    return tuple(path)


def by_path(
    counts: Mapping[int, float], totals: Mapping[int, int], frames: Mapping[int, list[Frame]]
) -> dict[Path, tuple[int, int]]:
    """Return, for each path, the sum of the totals of its addresses, and the largest of their counts.

    A count is times the number of copies that the compiler made of the statement. Raises BinaryInvalid if no
    address has a path.
    """
    found: dict[Path, tuple[int, int]] = {}
    for address, count in counts.items():
        path = path_of(frames[address])
        if path:
            copies = duplication_factor(frames[address][0].discriminator)
            total, largest = found.get(path, (0, 0))
            found[path] = total + totals.get(address, 0), max(largest, round(count * copies))
    if not found:
        raise BinaryInvalid(_NO_LINES)
    return found


def base_discriminator(discriminator: int) -> int:
    """Return the part of a discriminator that says which statement of the line it is.

    LLVM packs three numbers into a discriminator: DebugInfoMetadata.h, `DILocation::decodeDiscriminator`.
    """
    return _unpacked(discriminator)


def duplication_factor(discriminator: int) -> int:
    """Return in how many copies of its statement the code runs, as of an unrolled loop; 1 if in one."""
    width = 1 if discriminator & 1 else 14 if discriminator & 0x40 else 7
    return _unpacked(discriminator >> width) or 1


def _unpacked(packed: int) -> int:
    if packed & 1:
        return 0
    packed >>= 1
    return (packed >> 1 & 0xFE0) | (packed & 0x1F) if packed & 0x20 else packed & 0x1F
