"""Read the command's files into a `Batch`, in several processes; each reads a part of the files."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pprof_merge.command.files import BadInputError, is_file, read
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.batch import Batch
from pprof_merge.merging.headers import check_compatible


class Reading(NamedTuple):
    """How files are read.

    Without `every_label`, samples have no labels that number requests. Without `digests`, profiles have one
    only where it is needed to put them in order.
    """

    every_label: bool
    digests: bool


def collect(names: Sequence[str], jobs: int, reading: Reading) -> Batch:
    """Return the profiles of all files; there must be at least one. Raises BadInputError."""
    own, *others = _shares(names, jobs)
    readers = [_in_new_process(share, reading) for share in others]
    batch = _read_share(own, reading)
    for share, reader in zip(others, readers, strict=True):
        other = _received(reader, share)
        try:
            check_compatible(batch.header(0), other.header(0))
        except ProfileError as error:
            raise BadInputError(f"{share[0]}: {error}") from error
        batch.absorb(other)
    for number in batch.alike():
        try:
            batch.identify(number, read(names[number]))
        except ProfileError as error:
            raise BadInputError(f"{names[number]}: {error}") from error
    return batch


def _shares(names: Sequence[str], jobs: int) -> list[Sequence[str]]:
    """Return the files in at most `jobs` parts; no part is empty."""
    size = max(1, -(-len(names) // jobs))
    return [names[begin : begin + size] for begin in range(0, len(names), size)]


def _read_share(names: Sequence[str], reading: Reading) -> Batch:
    # The user's own files may be of any size.
    batch = Batch(Limits.none(), every_label=reading.every_label)
    n_headers = 0
    for name in _watched(names):
        try:
            # What comes through a pipe can't be read again for its digest.
            batch.read(read(name), with_digest=reading.digests or not is_file(name))
            if len(batch.headers) > n_headers:
                n_headers = len(batch.headers)
                check_compatible(batch.header(0), batch.header(len(batch) - 1))
        except ProfileError as error:
            raise BadInputError(f"{name}: {error}") from error
    return batch


class _Reader(NamedTuple):
    """A process that reads files, and the pipe through which it hands on what it has read."""

    process: int
    pipe: int


def _in_new_process(names: Sequence[str], reading: Reading) -> _Reader:
    """Read files in a process of their own, for `_received`.

    The process ends when it has written all, or when nobody reads it any more.
    """
    reader, writer = os.pipe()
    if process := os.fork():
        os.close(writer)
        return _Reader(process, reader)
    os.close(reader)
    status = 1
    try:
        from pickle import dump  # noqa: PLC0415 - for many files only

        try:
            taken: Batch | str = _read_share(names, reading)
        except BadInputError as error:
            taken = str(error)
        with os.fdopen(writer, "wb") as pipe:
            dump(taken, pipe, protocol=5)
        status = 0
    finally:
        os._exit(status)


def _received(reader: _Reader, names: Sequence[str]) -> Batch:
    """Return the profiles that another process has read. Raises BadInputError."""
    from pickle import UnpicklingError, load  # noqa: PLC0415 - for many files only

    with os.fdopen(reader.pipe, "rb") as pipe:
        try:
            taken = load(pipe)  # noqa: S301 - our own bytes
        except (EOFError, UnpicklingError):
            taken = None
    _, status = os.waitpid(reader.process, 0)
    if status or taken is None:
        raise BadInputError(f"{names[0]} to {names[-1]}: the process that read them has died")
    if isinstance(taken, str):
        raise BadInputError(taken)
    batch: Batch = taken
    return batch


def _watched(names: Sequence[str]) -> Iterator[str]:
    """Yield the names, with a progress bar on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield from names
        return
    from tqdm import tqdm  # noqa: PLC0415 - its import takes as long as merging ten profiles

    yield from tqdm(names, unit="profile", leave=False)
