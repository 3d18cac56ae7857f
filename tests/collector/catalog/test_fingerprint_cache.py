"""The fingerprint cache: a cached state is what another catalog reads, whatever was changed before."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, count
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pgo_collector.catalog.catalog import Catalog, Combined
from pgo_collector.catalog.leases import NO_LEASE
from pgo_collector.model.facts import Facts
from pgo_collector.model.selection import Coarse, Matcher, Selection
from pgo_collector.model.series import EVERY_SERVICE, BlobName, Identity, Series
from pgo_collector.settings import Settings
from pgo_collector.store.store import database_of

from tests.server import Server

Change = Callable[[Catalog, BlobName, Facts], None]

# In ns since 1970. An end that is long past stays as it is, one that isn't moves with the clock.
_PAST, _FUTURE = 0, 2**62
# Few values of each, so that selections match stored blobs.
_TIMES = st.integers(0, 12)
_BOUNDS = st.none() | _TIMES
_SERVICES = ("s", "t")
_SERIES = st.builds(
    lambda service, pod: Series(service, "cpu", (("pod", pod),)),
    st.sampled_from(_SERVICES),
    st.sampled_from("ab"),
)
_SELECTIONS = st.builds(
    Selection,
    st.sampled_from((*_SERVICES, EVERY_SERVICE)),
    st.just("cpu"),
    st.sampled_from([(), (Matcher("pod", frozenset("a")),)]),
    _BOUNDS,
    _BOUNDS,
)


_SERIES_A = Series("s", "cpu", (("pod", "a"),))
_ALL = Selection("s", "cpu")


def _add(catalog: Catalog, name: BlobName, facts: Facts) -> None:
    catalog.add((name, facts))


def _combine(catalog: Catalog, name: BlobName, facts: Facts) -> None:
    """Replace the service's blobs from this one's time on by one blob, which drops the label."""
    of_service = Selection(name.series.service, "cpu", begin=name.identity.time_nanos)
    blobs = catalog.live(of_service)
    inside = [
        each for inputs in catalog.profiles_counted_by(blob.id for blob in blobs).values() for each in inputs
    ]
    rolled_up = name._replace(series=name.series.rolled_up(["version"]))
    combined = Combined(rolled_up, facts, 1, [*inside, name])
    catalog.replace(NO_LEASE, combined, [blob.id for blob in blobs])


def _drop(catalog: Catalog, name: BlobName, _: Facts) -> None:
    catalog.drop(catalog.live(Selection.of(name.series))[:1])


_CHANGES = st.tuples(st.sampled_from([_add, _add, _add, _combine, _drop]), _SERIES, _TIMES)
# A selection that is asked for repeatedly, each time with a later begin and end.
_QUESTIONS = st.tuples(_SELECTIONS, st.lists(st.integers(0, 3), max_size=4))


@given(
    st.lists(st.one_of(_CHANGES, _QUESTIONS, _QUESTIONS), min_size=4, max_size=16),
    st.sampled_from([_PAST, _FUTURE]),
)
@example([(_add, _SERIES_A, 5), (_ALL, []), (_drop, _SERIES_A, 0), (_ALL, [])], _PAST)
@example(
    [
        (_add, _SERIES_A, 1), (_add, _SERIES_A, 3), (_combine, _SERIES_A, 1), (_add, _SERIES_A, 9),
        (replace(_ALL, begin=2), [1, 1, 1]),
    ],
    _PAST,
)  # fmt: skip
@example(
    [
        (_add, _SERIES_A, 1), (_add, _SERIES_A, 5), (_combine, _SERIES_A, 1), (_add, _SERIES_A, 8),
        (replace(_ALL, end=3), [2, 1, 2, 1]),
    ],
    _FUTURE,
)  # fmt: skip
@settings(deadline=None)
def test_a_cached_state_is_what_would_be_read(
    steps: list[tuple[Change, Series, int] | tuple[Selection, list[int]]], since: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as catalog:
        digests = (f"{number:064x}" for number in count())
        for step in steps:
            match step:
                case change, Series() as series, int(time_nanos):
                    name = BlobName(series, Identity(since + time_nanos, next(digests)))
                    change(catalog, name, Facts(since + time_nanos, 1, name.identity.digest, 1, 1))
                case Selection() as selection, list(delays):
                    later = _later(_after(selection, since), delays)
                    with another(Path(folder)) as other:
                        # The last one first: its state says nothing about the others.
                        anew = [_state(other, asked) for asked in reversed(later)]
                    assert [_state(catalog, asked) for asked in later] == anew[::-1]


def test_the_last_hour_is_read_once_until_a_profile_from_the_future_is_in_it() -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as catalog:
        for time_nanos in (_FUTURE + 5, _FUTURE + 30):
            name = BlobName(_SERIES_A, Identity(time_nanos, f"{time_nanos:064x}"))
            _add(catalog, name, Facts(time_nanos, 1, name.identity.digest, 1, 1))
        state = catalog.state(_between(0, 10))
        assert catalog.known_state(_between(5, 30)) == state
        assert catalog.known_state(_between(6, 30)) is None
        assert catalog.known_state(_between(5, 31)) is None


def _between(begin: int, end: int) -> Selection:
    return _after(replace(_ALL, begin=begin, end=end), _FUTURE)


def _after(selection: Selection, since: int) -> Selection:
    """Return a selection with bounds that count from `since`."""
    begin, end = (None if bound is None else since + bound for bound in (selection.begin, selection.end))
    return replace(selection, begin=begin, end=end)


@contextmanager
def opened(data: Path) -> Iterator[Catalog]:
    """A new catalog, deleted at the end."""
    with another(data) as catalog:
        catalog.database.open()
        yield catalog
    Server.catalogs.drop(data)


@contextmanager
def another(data: Path) -> Iterator[Catalog]:
    """The catalog as another process reads it."""
    url = Server.catalogs.settings(data).get("PGOF_CATALOG", "")
    database = database_of(Settings(directory=data, catalog=url))
    yield Catalog(database)
    database.close()


def _state(catalog: Catalog, selection: Selection) -> tuple[str, Coarse]:
    state = catalog.state(selection)
    return state.fingerprint, state.coarse


def _later(selection: Selection, delays: list[int]) -> list[Selection]:
    """Return the selection, and the same one with a later and later begin and end."""
    moved = [0, *accumulate(delays)]
    return [
        replace(
            selection,
            begin=None if selection.begin is None else selection.begin + by,
            end=None if selection.end is None else selection.end + by,
        )
        for by in moved
    ]
