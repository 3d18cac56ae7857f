"""Outputs of worker processes: written to a file piece by piece, and refused where they are over a budget."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pprof_merge import Budget, OutputTooLarge

from pgo_collector.errors import AnswerTooLarge

# What a question's answer is made from passes through the server's process, where there is less room than in
# a worker's: no more than this part of a budget.
_PART_FOR_THE_SERVER = 4


class WrittenFile(NamedTuple):
    """How many bytes a file has, and their SHA-256 in hex."""

    size: int
    sha256: str


@contextmanager
def refuse_too_large(what: str = "") -> Iterator[None]:
    """Makes an output that is over its budget a refusal, which says `what` it was, and the setting's name."""
    try:
        yield
    except OutputTooLarge as error:
        raise too_large(error, what) from error


def too_large(error: OutputTooLarge, what: str = "") -> AnswerTooLarge:
    """Return the refusal of an output that is over its budget."""
    return AnswerTooLarge(
        f"{what}it would take {error.size:,} bytes or more, and PGOF_MAX_OUTPUT_BYTES is {error.allowed:,};"
        f" {error.advice}"
    )


def server_budget(budget: Budget) -> Budget:
    """Return the budget of what a worker hands to the server's process."""
    return Budget(max(budget.most_bytes // _PART_FOR_THE_SERVER, 1))


def write_pieces(part: Path, pieces: Iterable[bytes]) -> WrittenFile:
    """Writes a file, durably; no more of it than a piece is in memory."""
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
            size += len(piece)
        file.flush()
        os.fsync(file.fileno())
    return WrittenFile(size, digest.hexdigest())
