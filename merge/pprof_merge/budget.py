"""Budgets: how many bytes an output may have, checked before the memory for it is taken.

A profile of a kilobyte can stand for gigabytes of text: a name of 32 KiB in stacks of 1,000 calls, or a
location with 250 inlined calls in each of them. So whoever writes an output computes from lengths and counts
how large it becomes, and is refused by `OutputTooLarge` before anything is joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pprof_merge.errors import OutputTooLarge
from pprof_merge.profile import Int64s

# Text is handed on in pieces of this size or more.
_PIECE_BYTES = 1 << 20
_LARGEST = 1 << 62
_POWERS_OF_TEN = np.array([10**power for power in range(1, 20)], np.uint64)


class Budget(NamedTuple):
    """How many bytes one output may have, and, in arrays, what it is made from. There is no bound by default.

    What is made besides, on the way, stays within three times as much.
    """

    most_bytes: int = _LARGEST

    def check(self, size: int, advice: str = "ask for less") -> None:
        """Raises OutputTooLarge, which gives the advice, if so many bytes are more than this."""
        if size > self.most_bytes:
            raise OutputTooLarge(size, self.most_bytes, advice)

    def check_rows(self, count: int, row_bytes: int, advice: str = "ask for less") -> None:
        """Raises OutputTooLarge if so many rows, each of so many bytes in memory, are more than this."""
        self.check(count * row_bytes, advice)

    def within(self, pieces: Iterable[bytes], advice: str = "ask for less") -> Iterator[bytes]:
        """Hands on pieces of an output, as few large ones. Raises OutputTooLarge before they are too many."""
        size, waiting, waiting_size = 0, list[bytes](), 0
        for piece in pieces:
            size += len(piece)
            self.check(size, advice)
            waiting.append(piece)
            waiting_size += len(piece)
            if waiting_size >= _PIECE_BYTES:
                yield b"".join(waiting)
                waiting, waiting_size = [], 0
        if waiting:
            yield b"".join(waiting)


UNBOUNDED = Budget()


def digits(values: Int64s) -> Int64s:
    """Return how many characters each number has in decimal, its minus sign included: (n,)."""
    magnitudes = np.abs(values).view(np.uint64)  # also that of -2^63 is right
    return np.searchsorted(_POWERS_OF_TEN, magnitudes, side="right") + 1 + (values < 0)
