"""The format `folded`: one stack a line, as Brendan Gregg's flamegraph.pl and most viewers read it.

    main.main;net/http.(*conn).serve;runtime.mallocgc 20000000

See https://github.com/brendangregg/FlameGraph. The number is the value of the sample type that
`go tool pprof` shows by default. A semicolon in a name becomes a colon, as in stackcollapse-perf.pl.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pprof_merge.analysis.stacks import default_column, stacks_of
from pprof_merge.arrays import Int64s
from pprof_merge.budget import Budget, digits
from pprof_merge.profile import Profile

_ESCAPES = str.maketrans({";": ":", "\n": " ", "\r": " "})
_NOTHING = "<unknown>"
# A stack as bytes: the ranks of its names, big-endian, so that sorting the bytes sorts the lines.
_RANK = np.dtype(">u4")
_ADVICE = "select fewer profiles, or take the format pprof or go, which have each name once"


class _Names(NamedTuple):
    """The distinct names of frames, escaped.

    `number_of` (n_frames) is the number of each frame's name; `nothing` is that of an empty stack's only
    name. A name within a line is followed by a semicolon, the last one isn't, so a name sorts in two ways:
    `inner` and `last` (n_names) are its ranks among all names of both kinds. `text` has the name of each
    rank. `size` (n_names) is the length of each name in bytes.
    """

    number_of: Int64s
    nothing: int
    inner: Int64s
    last: Int64s
    text: list[bytes]
    size: Int64s


def folded(profile: Profile, budget: Budget) -> Iterator[bytes]:
    """Yield the lines in UTF-8, sorted, each stack once; stacks that add up to 0 are left out.

    Raises OutputTooLarge.
    """
    stacks = stacks_of(profile, budget)
    stacks.check(budget)
    values = profile.samples.values[:, default_column(profile.header)]
    names = _names([frame.name for frame in stacks.frames])
    # The output has each name at least once. How often follows from the stacks, below.
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
        # Each name is followed by one character: a semicolon, or a space after the last.
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
    # UTF-8 sorts as its code points do.
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
    """Return ragged rows with `nothing` as the only entry of each empty row."""
    counts = np.diff(offsets)
    empty = np.flatnonzero(counts == 0)
    filled = np.insert(rows, offsets[empty], nothing)
    ends = np.cumsum(np.maximum(counts, 1))
    return filled, np.concatenate((np.zeros(1, np.int64), ends))
