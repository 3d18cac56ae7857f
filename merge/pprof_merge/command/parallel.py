"""Files → a `Collection`, in as many processes as asked for; each takes its share of the files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from pprof_merge.command.files import BadInputError, read
from pprof_merge.errors import ProfileError
from pprof_merge.limits import Limits
from pprof_merge.merging.collection import Collection
from pprof_merge.merging.headers import check_compatible


def collect(names: Sequence[str], jobs: int) -> Collection:
    """The profiles of all files, of which there is at least one. Raises BadInputError."""
    own, *others = _shares(names, jobs)
    if not others:
        return _collect_share(own)
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - for many files only
    from multiprocessing import get_context  # noqa: PLC0415

    # Forked, the others have what is imported here.
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
    """Some files each, no share empty."""
    size = max(1, -(-len(names) // jobs))
    return [names[begin : begin + size] for begin in range(0, len(names), size)]


def _collect_share(names: Sequence[str]) -> Collection:
    # Files on one's own disk are trusted to be as large as they are.
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
    """The names, with a progress bar where a person is watching."""
    if not sys.stderr.isatty():
        yield from names
        return
    from tqdm import tqdm  # noqa: PLC0415 - its import takes as long as merging ten profiles

    yield from tqdm(names, unit="profile", leave=False)
