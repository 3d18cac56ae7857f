"""Counting: samples at addresses of a program → counts of source lines, also of lines without samples."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pprof_merge.analysis.sample_paths import (
    MAX_DEPTH,
    Path,
    check_lines,
    counts_of_paths,
    has_branches,
    samples_of_leaves,
    samples_of_pairs,
)
from pprof_merge.arrays import Floats
from pprof_merge.binary.elf import Binary, Function
from pprof_merge.binary.places import AddressesIn, Frame, by_path, frames_of, functions_at, path_of
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.formats.llvm import samples_by_build, samples_in, text
from pprof_merge.limits import BinaryLimits
from pprof_merge.profile import Profile

if TYPE_CHECKING:
    from pprof_merge.binary.blocks import ControlFlow

# What each sample counts: counts are whole numbers, and a block's mean is often a fraction of a sample.
SCALE = 10
# What an indirect call calls is nested in it from this share of its samples on.
_DOMINANT = 0.3


def llvm_with_binary(
    profile: Profile, path: str, limits: BinaryLimits | None = None, budget: Budget = UNBOUNDED
) -> Iterator[bytes]:
    """Yield LLVM's sample profile of a CPU profile, with the program at `path` that was profiled.

    One of branch records is that of `branches.text_of_branches`.

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
    if has_branches(profile.header):
        from pprof_merge.binary.branches import text_of_branches  # noqa: PLC0415 - an extra

        yield from text_of_branches(profile, binary, path, limits, budget)
        return
    samples = samples_of_leaves(profile)
    at, others = samples_at(profile, samples, binary)
    functions = functions_at(binary, at, limits)
    counts, addresses, calls = dict[int, float](), list[int](), dict[int, int]()
    ways = dict[int, list[list[int]]]()
    for function in functions:
        flow = control_flow(function, binary, limits)
        means = means_of_blocks(flow, at)
        calls.update(flow.indirect_calls)
        ways.update(_before_calls(flow))
        for block, count in zip(flow.blocks, _consistent(limits)(flow, means).tolist(), strict=True):
            counts.update(dict.fromkeys(block, count))
            addresses += block
    frames = frames_of(path, sorted(addresses), limits)
    found = by_path(counts, {address: count * SCALE for address, count in at.items()}, frames)
    targets = _indirect_targets(profile, binary, calls)
    found = _with_nested(
        found, [(_places_of_call(ways[site], frames), shares) for site, shares in targets.items()]
    )
    check_lines(profile, others, budget)
    for other, total, count in counts_of_paths(profile, others):
        before = found.get(other, (0, 0))
        found[other] = before[0] + total * SCALE, before[1] + count * SCALE
    yield from text(((place, total, count) for place, (total, count) in found.items()), budget)


def kept_with_binary(profile: Profile, pieces: Iterable[bytes], build_id: str) -> int:
    """Return the sum of the values in what `llvm_with_binary` yields, with the program of a build id.

    Totals of branch records count bytes, so those are all that are in the program.
    """
    kept = samples_in(pieces) // SCALE
    return samples_by_build(profile)[build_id] if has_branches(profile.header) else kept


def samples_at(
    profile: Profile, samples: dict[int, int], binary: Binary
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the samples by address of the program, and the samples by location of all others."""
    placed = AddressesIn(profile, binary)
    at: dict[int, int] = defaultdict(int)
    others: dict[int, int] = {}
    for location, count in samples.items():
        address = placed[location]
        if address is None or binary.function(address) is None:
            others[location] = count
        else:
            at[address] += count
    return at, others


def _indirect_targets(
    profile: Profile, binary: Binary, calls: dict[int, int]
) -> dict[int, dict[bytes, float]]:
    """Return, for each call through a pointer, which functions it called mostly: the share of each one's own
    samples that it had when this call called it.

    `calls` are the addresses of these calls, and where each ends.
    """
    own: dict[bytes, int] = defaultdict(int)
    below: dict[int, dict[bytes, int]] = defaultdict(lambda: defaultdict(int))
    for function, site, count in samples_below(profile, binary, calls):
        own[function.name] += count
        if site is not None:
            below[site][function.name] += count
    return {
        site: {
            name: count / own[name]
            for name, count in of_site.items()
            if count >= _DOMINANT * sum(of_site.values())
        }
        for site, of_site in below.items()
    }


def samples_below(
    profile: Profile, binary: Binary, calls: dict[int, int]
) -> Iterator[tuple[Function, int | None, int]]:
    """Yield each function with samples, the call that called it, and how many samples it had then.

    The call is its address if it is one of `calls`, which are addresses and where each ends, else None.
    """
    placed, sites = AddressesIn(profile, binary), sorted(calls)
    for (leaf, caller), count in samples_of_pairs(profile).items():
        address, called_at = placed[leaf], None if caller < 0 else placed[caller]
        function = None if address is None else binary.function(address)
        if function is None:
            continue
        row = 0 if called_at is None else bisect_right(sites, called_at)
        site = sites[row - 1] if row else 0
        is_below = called_at is not None and site and called_at < calls[site]
        yield function, site if is_below else None, count


def _before_calls(flow: ControlFlow) -> dict[int, list[list[int]]]:
    """Return, for each call through a pointer, the instructions before it by the ways to it, nearest first.

    They are the call itself, those before it in its block, and those of each block that leads there.
    """
    sources: dict[int, list[int]] = defaultdict(list)
    for edge in flow.edges:
        sources[edge.target].append(edge.source)
    found = {}
    for row, block in enumerate(flow.blocks):
        for site in flow.indirect_calls.keys() & {*block}:
            own = block[block.index(site) :: -1]
            found[site] = [own + flow.blocks[source][::-1] for source in sources[row]] or [own]
    return found


def _places_of_call(ways: list[list[int]], frames: dict[int, list[Frame]]) -> set[Path]:
    """Return where a call may stand in the sources: its line, or the last one before it on each way.

    Where calls end branches alike, clang merges them into one, which has no line.
    """
    paths = (next(filter(None, (path_of(frames[address]) for address in way)), ()) for way in ways)
    return {path for path in paths if path}


def _with_nested(
    found: dict[Path, tuple[int, int]], targets: list[tuple[set[Path], dict[bytes, float]]]
) -> dict[Path, tuple[int, int]]:
    """Return the paths with the lines of what is called through pointers as if it were inlined there."""
    of_function: dict[bytes, list[Path]] = defaultdict(list)
    for path in found:
        of_function[path[0][0]].append(path)
    nested = dict(found)
    for sites, shares in targets:
        for site, (name, share) in product(sites, shares.items()):
            if any(name == each for each, _ in site):
                continue
            for path in of_function[name]:
                if len(site) + len(path) <= MAX_DEPTH:
                    total, count = (round(each * share / len(sites)) for each in found[path])
                    before = nested.get(site + path, (0, 0))
                    nested[site + path] = before[0] + total, before[1] + count
                    left, rest = nested[path]
                    nested[path] = max(left - total, 0), max(rest - count, 0)
    return nested


def means_of_blocks(flow: ControlFlow, at: dict[int, int]) -> Floats:
    """Return the samples of each block, by instruction."""
    sizes = [max(len(block), 1) for block in flow.blocks]
    samples = (sum(at.get(each, 0) for each in block) for block in flow.blocks)
    return np.array([SCALE * count / size for count, size in zip(samples, sizes, strict=True)])


def _consistent(limits: BinaryLimits) -> Callable[[ControlFlow, Floats], Floats]:
    if find_spec("highspy") is None:
        return lambda _, means: means
    from pprof_merge.binary.flow import consistent_counts  # noqa: PLC0415 - an extra of its own

    return lambda flow, means: consistent_counts(flow, means, limits.flow_seconds)
