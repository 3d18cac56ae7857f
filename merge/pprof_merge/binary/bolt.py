"""BOLT's profile: samples at addresses of a program → how often each branch, call and next block was taken.

BOLT's README describes the text of a profile with branches, and its DataReader.cpp reads it. A line has where
a branch begins and where it ends, each as a function's name and an offset in it, and two counts: how often it
was mispredicted, which no sample tells, and how often it was taken. To go on to the next block is a branch
from the last instruction of a block.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from pprof_merge.analysis.sample_paths import has_branches, samples_of_leaves
from pprof_merge.arrays import Floats
from pprof_merge.binary.counting import means_of_blocks, samples_at, samples_below
from pprof_merge.binary.elf import Binary
from pprof_merge.binary.places import functions_at
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.errors import BinaryInvalid, UnfitForFormat
from pprof_merge.limits import BinaryLimits
from pprof_merge.profile import Profile

if TYPE_CHECKING:
    from pprof_merge.binary.blocks import ControlFlow

# How often branches were taken, by their own address and the one that they lead to.
_Taken = dict[tuple[int, int], float]
# What each unit of a mean counts: counts are whole numbers, and a mean is often a fraction of a sample.
_SCALE = 10
# Other names would end early: the format has no quotes.
_READABLE = re.compile(rb"[^\x00-\x20\x7f\\]+")
_ADVICE = "select fewer profiles: too many branches were sampled"


def bolt_with_binary(
    profile: Profile, path: str, limits: BinaryLimits | None = None, budget: Budget = UNBOUNDED
) -> Iterator[bytes]:
    """Yield BOLT's profile of a CPU profile, with the program at `path` that was profiled.

    The counts in a function are those of the flow that is nearest to its samples; a function in which that
    has no sample is left out. A call counts as often as its block, and what one through a pointer calls, by
    the samples right below it. What else enters a function comes from a place that isn't known. Samples
    outside the program are left out.

    Raises UnfitForFormat, OutputTooLarge, OSError, and BinaryInvalid, also if no sample is in the program;
    ModuleNotFoundError without the extras `binary` and `flow`.
    """
    from pprof_merge.binary.blocks import control_flow  # noqa: PLC0415 - an extra
    from pprof_merge.binary.flow import counts_of_blocks, nearest_flow  # noqa: PLC0415 - an extra

    limits = limits or BinaryLimits()
    if has_branches(profile.header):
        raise UnfitForFormat("it has branch records; this format takes CPU profiles")
    binary = Binary.at(path, limits)
    at, _ = samples_at(profile, samples_of_leaves(profile), binary)
    taken: _Taken = defaultdict(float)
    entries = dict[int, float]()
    # By the address of a call through a pointer: where it ends, and how often it called.
    ends, called = dict[int, int](), dict[int, float]()
    for function in functions_at(binary, at, limits):
        flow = control_flow(function, binary, limits)
        edges = nearest_flow(flow, means_of_blocks(flow, at), limits.flow_seconds)
        if edges is None:
            continue
        entries[function.start] = _add_branches(taken, flow, edges, limits)
        counts = _counts_of_calls(flow, edges, counts_of_blocks(flow, edges))
        for site, target in flow.calls.items():
            taken[site, target] += counts[site]
        ends |= flow.indirect_calls
        called |= {site: counts[site] for site in flow.indirect_calls}
    below: dict[int, Counter[int]] = defaultdict(Counter)
    for callee, caller, samples in samples_below(profile, binary, ends):
        if caller is not None:
            below[caller][callee.start] += samples
    for site, callees in below.items():
        for target, count in callees.items():
            taken[site, target] += called[site] * count / callees.total()
    yield from budget.within(_lines(taken, entries, binary), _ADVICE)


def _add_branches(taken: _Taken, flow: ControlFlow, edges: Floats, limits: BinaryLimits) -> float:
    """Add the branches in a function, and return how often it was entered.

    What leads through a jump table leads from each of its jumps to each of its targets, in proportion. Raises
    BinaryInvalid if these are too many.
    """
    into: dict[int, list[tuple[int, float]]] = defaultdict(list)
    out_of: dict[int, list[tuple[int, float]]] = defaultdict(list)
    entered = 0.0
    for edge, count in zip(flow.edges, edges.tolist(), strict=True):
        entered += count * ((edge.source == 0) - (edge.target == 0))
        if edge.leaves or not count:
            continue
        if not flow.blocks[edge.target]:
            into[edge.target].append((edge.source, count))
        elif not flow.blocks[edge.source]:
            out_of[edge.source].append((edge.target, count))
        else:
            taken[flow.blocks[edge.source][-1], flow.blocks[edge.target][0]] += count
    ways = sum(len(sources) * len(out_of[table]) for table, sources in into.items())
    if ways > limits.table_entries:
        raise BinaryInvalid(f"a function jumps through tables in over {limits.table_entries:,} ways")
    for table, sources in into.items():
        total = sum(count for _, count in sources)
        for (source, count), (target, share) in product(sources, out_of[table]):
            taken[flow.blocks[source][-1], flow.blocks[target][0]] += count * share / total
    return entered


def _counts_of_calls(flow: ControlFlow, edges: Floats, blocks: Floats) -> dict[int, float]:
    """Return how often each call of a function called, and each jump to another one jumped.

    `edges` (n_edges) and `blocks` (n_blocks) are the counts of the flow.
    """
    leaving: dict[int, float] = defaultdict(float)
    for edge, count in zip(flow.edges, edges.tolist(), strict=True):
        if edge.leaves and not edge.is_rare:
            leaving[edge.source] += count
    sites = flow.calls.keys() | flow.indirect_calls.keys()
    found = {}
    for row, (block, count) in enumerate(zip(flow.blocks, blocks.tolist(), strict=True)):
        for site in sites.intersection(block):
            found[site] = leaving[row] if site == block[-1] and row in leaving else count
    return found


def _lines(taken: _Taken, entries: dict[int, float], binary: Binary) -> Iterator[bytes]:
    """Yield a line for each branch, and one for the rest of each function's entries."""
    addresses = {address for branch in taken for address in branch} | entries.keys()
    functions = {address: binary.function(address) for address in addresses}
    names = binary.numbered_names(
        {each.start: each.name for each in functions.values() if each and _READABLE.fullmatch(each.name)}
    )
    entered = Counter[int]()
    for (source, target), count in sorted(taken.items()):
        caller, callee, whole = functions[source], functions[target], round(count * _SCALE)
        # A call of a library leads to a place without a function.
        if caller is None or callee is None or not {caller.start, callee.start} <= names.keys() or not whole:
            continue
        ends = (
            b"1 %s %x" % (names[each.start], at - each.start)
            for each, at in ((caller, source), (callee, target))
        )
        yield b"%s 0 %d\n" % (b" ".join(ends), whole)
        if caller.start != callee.start:
            entered[target] += whole
    for start, count in entries.items():
        rest = round(count * _SCALE) - entered[start]
        if rest > 0 and start in names:
            yield b"0 [unknown] 0 1 %s 0 0 %d\n" % (names[start], rest)
