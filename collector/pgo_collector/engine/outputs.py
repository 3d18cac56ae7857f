"""Outputs of worker processes: files written piece by piece, and the refusal of outputs over a budget."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Budget, OutputTooLarge

from pgo_collector.errors import AnswerTooLarge

# The result of a query passes through the server's process, which has less room than a worker's. It may take
# the budget divided by this.
_PART_FOR_THE_SERVER = 4


class WrittenFile(NamedTuple):
    """The size of a file in bytes, and its SHA-256 in hex."""

    size: int
    sha256: str


@contextmanager
def refuse_too_large(what: str = "") -> Iterator[None]:
    """Turn OutputTooLarge into AnswerTooLarge, whose message begins with `what` and names the setting."""
    try:
        yield
    except OutputTooLarge as error:
        raise too_large(error, what) from error


def too_large(error: OutputTooLarge, what: str = "") -> AnswerTooLarge:
    """Return the refusal of an output that is over its budget; its message begins with `what`."""
    return AnswerTooLarge(
        f"{what}it would take {error.size:,} bytes or more, and PGOF_MAX_OUTPUT_BYTES is {error.allowed:,};"
        f" {error.advice}"
    )


def server_budget(budget: Budget) -> Budget:
    """Return the budget for a result that a worker hands to the server's process."""
    return Budget(max(budget.most_bytes // _PART_FOR_THE_SERVER, 1))


def write_pieces(part: Path, pieces: Iterable[bytes]) -> WrittenFile:
    """Write a file, with one piece at a time in memory; return its size and SHA-256.

    It isn't durable: what is to last is synced where it is stored.
    """
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    return WrittenFile(size, digest.hexdigest())
