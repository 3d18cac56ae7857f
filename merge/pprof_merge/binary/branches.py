"""Branch records: what ran, by addresses of the program → counts of lines, entries and calls, as by AutoFDO.

A profile of branch records counts two things of pairs of addresses: see `BRANCH_TYPES`. Each instruction of a
range ran as often as the range, so no count is a guess.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from pprof_merge.analysis.sample_paths import BRANCHES, RANGES, Path, samples_of_pairs
from pprof_merge.binary.blocks import straight_code
from pprof_merge.binary.elf import Binary, Function
from pprof_merge.binary.places import AddressesIn, Frame, by_path, frames_of, functions_at, path_of
from pprof_merge.budget import Budget
from pprof_merge.formats.llvm import Calls, text
from pprof_merge.limits import BinaryLimits
from pprof_merge.profile import Profile

# The first and the last address of what ran in a row, and how often.
_Range = tuple[int, int, int]


def text_of_branches(
    profile: Profile, binary: Binary, path: str, limits: BinaryLimits, budget: Budget
) -> Iterator[bytes]:
    """Yield LLVM's sample profile of branch records in the program at `path`; others are left out.

    A line counts the maximum of its instructions, times the number of copies that the compiler made of it;
    lines that didn't run, of functions that did, count 0. A total has each instruction's count as often as it
    has bytes, as llvm-profgen writes it. Raises OutputTooLarge, OSError, and BinaryInvalid, also if no range
    is in the program.
    """
    ran = [
        (first, last, count) for last, first, count in _pairs(profile, binary, RANGES) if first is not None
    ]
    functions = functions_at(binary, (first for first, _, _ in ran), limits)
    counts, sizes = dict[int, int](), dict[int, int]()
    for function, ranges in _by_function(functions, ran):
        for address, size, count in _executed(function, ranges):
            counts[address], sizes[address] = count, size
    entered = [
        (source, target, count)
        for target, source, count in _pairs(profile, binary, BRANCHES)
        if _is_entry(binary, target)
    ]
    ends = {target for _, target, _ in entered} | {source for source, _, _ in entered if source is not None}
    frames = frames_of(path, sorted(counts.keys() | ends), limits)
    found = by_path(counts, {address: count * sizes[address] for address, count in counts.items()}, frames)
    lines = ((place, total, count) for place, (total, count) in found.items())
    yield from text(lines, budget, _calls(entered, frames))


def _pairs(profile: Profile, binary: Binary, column: int) -> Iterator[tuple[int, int | None, int]]:
    """Yield each leaf in the program with its caller, and how often this was counted.

    They are addresses of the program; the caller is None if it is elsewhere.
    """
    addresses = AddressesIn(profile, binary)
    for (leaf, caller), count in samples_of_pairs(profile, column).items():
        address = addresses[leaf]
        # A stack of one location is no pair: a rule may have cut it.
        if address is not None and caller >= 0 and count > 0:
            yield address, addresses[caller], count


def _by_function(
    functions: list[Function], ranges: Iterable[_Range]
) -> Iterator[tuple[Function, list[_Range]]]:
    starts = [function.start for function in functions]
    of_function: dict[int, list[_Range]] = defaultdict(list)
    for each in ranges:
        of_function[bisect_right(starts, each[0]) - 1].append(each)
    for row, function in enumerate(functions):
        yield function, of_function[row]


def _executed(function: Function, ranges: list[_Range]) -> Iterator[tuple[int, int, int]]:
    """Yield the address of each instruction, its size in bytes, and how often it ran.

    A range that isn't within the function is left out, and so is one that runs on where the code can't: CPUs
    were seen to record branches twice.
    """
    addresses, stops = straight_code(function)
    after = [*addresses[1:], function.start + len(function.code)]
    stops_before = [0, *accumulate(int(address in stops) for address in addresses)]
    changes = [0] * (len(addresses) + 1)
    for first, last, count in ranges:
        begin, end = bisect_left(addresses, first), bisect_right(addresses, last)
        if last < after[-1] and begin < end and stops_before[begin] == stops_before[end - 1]:
            changes[begin] += count
            changes[end] -= count
    for address, end, count in zip(addresses, after, accumulate(changes), strict=False):
        yield address, end - address, count


def _is_entry(binary: Binary, address: int) -> bool:
    """Return whether a function begins at an address: not its cold part, which has its name and a suffix."""
    function = binary.function(address)
    return function is not None and function.start == address and b"cold" not in function.name.split(b".")


def _calls(entered: list[tuple[int | None, int, int]], frames: dict[int, list[Frame]]) -> Calls:
    """Return the calls from sources, None if outside the program, to functions, and how often each was."""
    heads: Counter[bytes] = Counter()
    targets: dict[Path, Counter[bytes]] = defaultdict(Counter)
    for source, target, count in entered:
        callee = path_of(frames[target])
        if not callee:
            continue
        name = callee[0][0]
        heads[name] += count
        caller = () if source is None else path_of(frames[source])
        # The format has no quotes: such a name would end early.
        if caller and b" " not in name and b":" not in name:
            targets[caller][name] += count
    return Calls(heads, targets)
