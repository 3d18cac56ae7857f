"""Budgets: how many bytes an output may have, checked before its memory is allocated.

A profile of a kilobyte can expand to gigabytes of text: a name of 32 KiB in stacks of 1,000 calls, or a
location with 250 inlined calls in each of them. So each writer computes the size of its output from lengths
and counts, and raises `OutputTooLarge` before it joins anything.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pprof_merge.arrays import Int64s
from pprof_merge.errors import OutputTooLarge

# Every piece of an output but the last has at least this size.
_PIECE_BYTES = 1 << 20
_NO_BOUND = 1 << 62


class Budget(NamedTuple):
    """The bytes that one output may have, and that the arrays it is made from may take; by default unbounded.

    Temporary memory besides these stays within three times `most_bytes`.
    """

    most_bytes: int = _NO_BOUND

    def check(self, size: int, advice: str = "ask for less") -> None:
        """Raise OutputTooLarge, with the advice, if `size` bytes are more than the budget."""
        if size > self.most_bytes:
            raise OutputTooLarge(size, self.most_bytes, advice)

    def check_rows(self, count: int, row_bytes: int, advice: str = "ask for less") -> None:
        """Raise OutputTooLarge if `count` rows of `row_bytes` bytes each are more than the budget."""
        self.check(count * row_bytes, advice)

    def within(self, pieces: Iterable[bytes], advice: str = "ask for less") -> Iterator[bytes]:
        """Yield the pieces of an output, joined into fewer and larger ones of about 1 MiB.

        Raises OutputTooLarge as soon as the pieces read so far exceed the budget.
        """
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
    """Return how many characters each number has in decimal, including a minus sign: (n,)."""
    import numpy as np  # noqa: PLC0415 - budgets of other formats need no arrays

    powers_of_ten = np.array([10**power for power in range(1, 20)], np.uint64)
    magnitudes = np.abs(values).view(np.uint64)  # correct for -2^63 too
    return np.searchsorted(powers_of_ten, magnitudes, side="right") + 1 + (values < 0)
