"""Read the command's files into a `Collection`, in several processes; each reads a part of the files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from pprof_merge.command.files import BadInputError, read
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.collection import Collection
from pprof_merge.merging.headers import check_compatible


def collect(names: Sequence[str], jobs: int) -> Collection:
    """Return the profiles of all files; there must be at least one. Raises BadInputError."""
    own, *others = _shares(names, jobs)
    if not others:
        return _collect_share(own)
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - for many files only
    from multiprocessing import get_context  # noqa: PLC0415

    # Forked processes have the imported modules already.
    with ProcessPoolExecutor(len(others), get_context("fork")) as processes:
        collections = [processes.submit(_collect_share, share) for share in others]
        collection = _collect_share(own)
        for share, other in zip(others, collections, strict=True):
            try:
                check_compatible(collection.header(0), other.result().header(0))
            except ProfileError as error:
                raise BadInputError(f"{share[0]}: {error}") from error
            collection.absorb(other.result())
    return collection


def _shares(names: Sequence[str], jobs: int) -> list[Sequence[str]]:
    """Return the files in at most `jobs` parts; no part is empty."""
    size = max(1, -(-len(names) // jobs))
    return [names[begin : begin + size] for begin in range(0, len(names), size)]


def _collect_share(names: Sequence[str]) -> Collection:
    # The user's own files may be of any size.
    collection = Collection(Limits.none())
    for name, taken in zip(names, collection.extend(map(read, _watched(names))), strict=True):
        if isinstance(taken, ProfileError):
            raise BadInputError(f"{name}: {taken}") from taken
        try:
            check_compatible(collection.header(0), collection.header(taken))
        except ProfileError as error:
            raise BadInputError(f"{name}: {error}") from error
    return collection


def _watched(names: Sequence[str]) -> Iterator[str]:
    """Yield the names, with a progress bar on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield from names
        return
    from tqdm import tqdm  # noqa: PLC0415 - its import takes as long as merging ten profiles

    yield from tqdm(names, unit="profile", leave=False)
