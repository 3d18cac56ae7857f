"""Counting: samples at addresses of a program → counts of source lines, also of lines without samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from pprof_merge.arrays import Floats
from pprof_merge.binary.elf import Binary, Function
from pprof_merge.binary.places import Frame, base_discriminator, duplication_factor, frames_of
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.errors import BinaryInvalid
from pprof_merge.formats.llvm import (
    MAX_DEPTH,
    Path,
    check_lines,
    counts_of_paths,
    offset_of,
    readable_name,
    samples_of_leaves,
    text,
)
from pprof_merge.limits import BinaryLimits
from pprof_merge.profile import Profile

if TYPE_CHECKING:
    from pprof_merge.binary.blocks import ControlFlow

# Counts are whole numbers, and a block's mean is often a fraction of a sample.
_SCALE = 10


def llvm_with_binary(
    profile: Profile, path: str, limits: BinaryLimits | None = None, budget: Budget = UNBOUNDED
) -> Iterator[bytes]:
    """Yield LLVM's sample profile of a CPU profile, with the program at `path` that was profiled.

    A basic block counts the mean of its instructions' samples, since each of them ran as often as the block.
    Blocks of one function are made consistent. A line counts the maximum of its blocks, times the number of
    copies that the compiler made of it; lines of sampled functions that weren't sampled count 0. Samples
    outside the program are counted as without it.

    Raises UnfitForFormat, OutputTooLarge, OSError, and BinaryInvalid, also if no sample is in the program;
    ModuleNotFoundError without the extra `binary`.
    """
    from pprof_merge.binary.blocks import control_flow  # noqa: PLC0415 - an extra

    limits = limits or BinaryLimits()
    binary = Binary.at(path, limits)
    samples = samples_of_leaves(profile)
    at, others = _samples_at(profile, samples, binary)
    functions = _sampled_functions(binary, at, limits)
    if not functions:
        raise BinaryInvalid("no sample is in a function of this program; give the one that was profiled")
    counts, addresses = dict[int, float](), list[int]()
    for function in functions:
        flow = control_flow(function, binary, limits)
        means = _means(flow, at)
        for block, count in zip(flow.blocks, _consistent(limits)(flow, means).tolist(), strict=True):
            counts.update(dict.fromkeys(block, count))
            addresses += block
    found = _by_path(counts, at, frames_of(path, sorted(addresses), limits))
    if not found:
        raise BinaryInvalid("it has no debug lines; build it with -g -fdebug-info-for-profiling")
    check_lines(profile, others, budget)
    for other, total, count in counts_of_paths(profile, others):
        before = found.get(other, (0, 0))
        found[other] = before[0] + total * _SCALE, before[1] + count * _SCALE
    yield from text(((place, total, count) for place, (total, count) in found.items()), budget)


def _samples_at(
    profile: Profile, samples: dict[int, int], binary: Binary
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the samples by address of the program, and the samples by location of all others."""
    mappings, locations = profile.mappings, profile.locations
    is_own = [_is_of(profile, row, binary) for row in range(len(mappings))]
    at: dict[int, int] = defaultdict(int)
    others: dict[int, int] = {}
    for location, count in samples.items():
        mapping, address = int(locations.mapping[location]), int(locations.address[location])
        placed = None
        if mapping >= 0 and is_own[mapping]:
            start, offset = int(mappings.start[mapping]), int(mappings.offset[mapping])
            placed = binary.address(address - start + offset)
        if placed is None or binary.function(placed) is None:
            others[location] = count
        else:
            at[placed] += count
    return at, others


def _is_of(profile: Profile, mapping: int, binary: Binary) -> bool:
    """Return whether a mapping is of the program, by its build id."""
    build_id = profile.strings[int(profile.mappings.build_id[mapping])].decode(errors="replace")
    return bool(build_id) and build_id == binary.build_id


def _sampled_functions(binary: Binary, at: dict[int, int], limits: BinaryLimits) -> list[Function]:
    functions = {found.start: found for found in map(binary.function, at) if found is not None}
    size = sum(len(function.code) for function in functions.values())
    if size > limits.code_bytes:
        raise BinaryInvalid(f"the sampled functions have {size:,} bytes, more than {limits.code_bytes:,}")
    return [functions[start] for start in sorted(functions)]


def _means(flow: ControlFlow, at: dict[int, int]) -> Floats:
    """Return the samples of each block, by instruction."""
    sizes = [max(len(block), 1) for block in flow.blocks]
    samples = (sum(at.get(each, 0) for each in block) for block in flow.blocks)
    return np.array([_SCALE * count / size for count, size in zip(samples, sizes, strict=True)])


def _consistent(limits: BinaryLimits) -> Callable[[ControlFlow, Floats], Floats]:
    if find_spec("highspy") is None:
        return lambda _, means: means
    from pprof_merge.binary.flow import consistent_counts  # noqa: PLC0415 - an extra of its own

    return lambda flow, means: consistent_counts(flow, means, limits.flow_seconds)


def _by_path(
    counts: dict[int, float], at: dict[int, int], frames: dict[int, list[Frame]]
) -> dict[Path, tuple[int, int]]:
    """Return the samples and the count of each path, the largest over its addresses."""
    found: dict[Path, tuple[int, int]] = {}
    for address, count in counts.items():
        of_address = frames[address]
        path = _path(of_address)
        if path:
            copies = duplication_factor(of_address[0].discriminator)
            total, largest = found.get(path, (0, 0))
            found[path] = total + at.get(address, 0) * _SCALE, max(largest, round(count * copies))
    return found


def _path(frames: list[Frame]) -> Path:
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
