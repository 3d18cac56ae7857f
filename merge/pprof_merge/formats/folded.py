"""`folded`: a line a stack, as Brendan Gregg's flamegraph.pl and most viewers take it.

    main.main;net/http.(*conn).serve;runtime.mallocgc 20000000

See https://github.com/brendangregg/FlameGraph. The number is of the sample type that `go tool pprof`
shows by default. A semicolon within a name becomes a colon, as stackcollapse-perf.pl has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.stacks import default_column, stacks_of
from pprof_merge.budget import Budget, digits
from pprof_merge.profile import Int64s, Profile

_ESCAPES = str.maketrans({";": ":", "\n": " ", "\r": " "})
_NOTHING = "<unknown>"
# A stack as bytes: the ranks of its names, which are in the order of the lines where the ranks are.
_RANK = np.dtype(">u4")
_ADVICE = "select fewer profiles, or take the format pprof or go, which have each name once"


class _Names(NamedTuple):
    """The names of frames, each once; `number_of` (n_frames) is that of each frame, `nothing` that of none.

    In a line a name is followed by a semicolon, or is the last, so that it sorts in two ways: `inner` and
    `last` (n) are its ranks among all of both. `text` is the name of each rank, `size` (n) its bytes.
    """

    number_of: Int64s
    nothing: int
    inner: Int64s
    last: Int64s
    text: list[bytes]
    size: Int64s


def folded(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Lines in the order of their stacks, each stack once, without those that add up to 0; UTF-8."""
    stacks = stacks_of(profile, budget)
    stacks.check(budget)
    values = profile.samples.values[:, default_column(profile.header)]
    names = _names([frame.name for frame in stacks.frames])
    # A name is in the output once at least; how often, the stacks tell.
    budget.check(int(names.size.max(initial=0)), _ADVICE)
    numbers: dict[bytes, int] = {}
    number_of: list[int] = []
    sizes: list[int] = []
    for chunk in stacks.chunks():
        rows, offsets = names.number_of[chunk.rows], chunk.offsets
        if not np.diff(offsets).all():
            rows, offsets = _filled(rows, offsets, names.nothing)
        ranks = names.inner[rows]
        ranks[offsets[1:] - 1] = names.last[rows[offsets[1:] - 1]]
        every = ranks.astype(_RANK).tobytes()
        bounds = (offsets * _RANK.itemsize).tolist()
        # With a semicolon after each name but the last, and a space after that.
        lengths = np.add.reduceat(names.size[rows] + 1, offsets[:-1]).tolist()
        for begin, end, length in zip(bounds[:-1], bounds[1:], lengths, strict=True):
            number = numbers.setdefault(every[begin:end], len(numbers))
            number_of.append(number)
            if number == len(sizes):
                sizes.append(length)
    totals = np.zeros(len(numbers), np.int64)
    np.add.at(totals, np.array(number_of, np.int64), values)
    del number_of
    is_written = totals != 0
    budget.check(int((np.array(sizes, np.int64) + digits(totals) + 1)[is_written].sum()), _ADVICE)
    yield from budget.within(_lines(numbers, totals, names.text), _ADVICE)


def _lines(numbers: dict[bytes, int], totals: Int64s, texts: list[bytes]) -> Iterator[bytes]:
    for ranks in sorted(numbers):
        if total := totals[numbers[ranks]]:
            stack = b";".join([texts[rank] for rank in np.frombuffer(ranks, _RANK).tolist()])
            yield b"%s %d\n" % (stack, total)


def _names(frames: list[str]) -> _Names:
    escaped: dict[str, str] = {}
    numbers: dict[str, int] = {}
    number_of = np.empty(len(frames), np.int64)
    for row, name in enumerate(frames):
        text = escaped.get(name)
        if text is None:
            text = escaped[name] = name.translate(_ESCAPES)
        number_of[row] = numbers.setdefault(text, len(numbers))
    nothing = numbers.setdefault(_NOTHING, len(numbers))
    del escaped
    texts = list(numbers)
    encoded = [text.encode() for text in texts]
    # UTF-8 sorts as its letters do.
    order = sorted(
        [(text, False, row) for row, text in enumerate(encoded)]
        + [(text + b";", True, row) for row, text in enumerate(encoded)]
    )
    inner, last = np.empty(len(texts), np.int64), np.empty(len(texts), np.int64)
    by_rank: list[bytes] = []
    for rank, (_, is_inner, row) in enumerate(order):
        (inner if is_inner else last)[row] = rank
        by_rank.append(encoded[row])
    size = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return _Names(number_of, nothing, inner, last, by_rank, size)


def _filled(rows: Int64s, offsets: Int64s, nothing: int) -> tuple[Int64s, Int64s]:
    """Ragged rows, those that are empty filled with one number."""
    counts = np.diff(offsets)
    empty = np.flatnonzero(counts == 0)
    filled = np.insert(rows, offsets[empty], nothing)
    ends = np.cumsum(np.maximum(counts, 1))
    return filled, np.concatenate((np.zeros(1, np.int64), ends))
