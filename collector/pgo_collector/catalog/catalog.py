"""The catalog: which blobs there are, which of them are live, and which profiles each one counts.

Every method is one transaction. The catalog may be lost: `reconcile` rebuilds it from the blobs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import sqlalchemy as sa

from pgo_collector.catalog.database import Database, Owner
from pgo_collector.catalog.faults import Fault, fault_of
from pgo_collector.catalog.fingerprint_cache import FingerprintCache, SelectionState, read_state
from pgo_collector.catalog.leases import Lease
from pgo_collector.catalog.rows import (
    NAMED,
    NAMED_BLOBS,
    Blob,
    BlobTable,
    add_profiles,
    assign_profiles,
    batches,
    claim_blob,
    delete_blobs,
    drop_empty_series,
    put_blob,
    read_blobs,
    read_counting,
    read_in_order,
    read_newest,
    read_table,
    series_id,
    series_of,
    series_with,
    unassign_profiles,
)
from pgo_collector.catalog.selection_sql import in_scope, selected
from pgo_collector.catalog.tables import BLOBS, DAY, IS_COMBINED, IS_LIVE, MADE, OUTBOX, PROFILES, SERIES
from pgo_collector.errors import CatalogBusy
from pgo_collector.model.facts import Event, Facts
from pgo_collector.model.profile_types import NOT_ROLLED_UP, ROLLED_UP_WITH_DURATION
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import EVERY_SCOPE, EVERY_SERVICE, BlobName, Identity, Scope, Series
from pgo_collector.model.services import services_of
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.traces.spans import place, span

P = ParamSpec("P")
T = TypeVar("T")

# How often a transaction is tried that meets another collector's, and the longest pause before a further try.
_TRIES = 5
_PAUSE_SECONDS = 0.1
_NONE_NEW: Mapping[Owner, int] = MappingProxyType({})
# Bytes in .inputs of the first line, and of every other line without its time and labels. See `blobs.blobs`.
_CHECKSUM_BYTES = 65
_LINE_BYTES = 66
_SERIES_KEY = ("service", "type", "labels")
_WANTED: tuple[sa.ColumnClause[Any], ...] = (
    sa.column("number", sa.Integer),
    *(sa.column(key, sa.Text) for key in _SERIES_KEY),
    sa.column("time_nanos", sa.BigInteger),
    sa.column("digest", sa.Text),
)
_IS_ROLLED_UP = SERIES.c.type.not_in(NOT_ROLLED_UP) & (
    SERIES.c.type.not_in(ROLLED_UP_WITH_DURATION) | (BLOBS.c.duration_nanos > 0)
)
# The first number that is too large for an integer column.
_BEYOND = 1 << 63


class Extent(NamedTuple):
    """The number of blobs, and the times of the first and the last of them in ns since 1970."""

    blobs: int
    first: int
    last: int


class Day(NamedTuple):
    """A UTC day of a series; `number` is in days since 1970."""

    series: Series
    number: int


class Combined(NamedTuple):
    """A combined blob, the size of its .inputs in bytes, and the profiles inside it, its own among them."""

    name: BlobName
    facts: Facts
    inputs_size: int
    inputs: Collection[BlobName]


def _tried_again(transaction: Callable[P, T]) -> Callable[P, T]:
    """Have a transaction tried again if another collector's was in its way."""

    @wraps(transaction)
    def trying(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_TRIES - 1):
            try:
                return transaction(*args, **kwargs)
            except sa.exc.SQLAlchemyError as error:
                if fault_of(error) is not Fault.CONFLICT:
                    raise
            time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - spreads load
        return transaction(*args, **kwargs)

    return trying


class ChangedOwners:
    """The services and types that this process has changed blobs of, until `Warming` takes them from here.

    Any thread may add some, and one task of the event loop waits for them.
    """

    def __init__(self) -> None:
        # Single operations on a dict need no lock.
        self._owners: dict[Owner, None] = {}
        self._tell: Callable[[], object] | None = None

    def __iter__(self) -> Iterator[Owner]:
        return iter(self._owners.copy())

    def add(self, owners: Collection[Owner]) -> None:
        """Add owners, and wake the task that waits for the first of them."""
        self._owners.update(dict.fromkeys(owners))
        if owners and (tell := self._tell) is not None:
            self._tell = None
            tell()

    async def wait(self) -> None:
        """Wait until there are some."""
        loop, there = asyncio.get_running_loop(), asyncio.Event()
        self._tell = lambda: loop.call_soon_threadsafe(there.set)
        try:
            if not self._owners:  # only now, since what is added from now on tells
                await there.wait()
        finally:
            self._tell = None

    def take(self) -> list[Owner]:
        """Return the owners, and forget them."""
        return [self._owners.popitem()[0] for _ in range(len(self._owners))]


class Catalog:
    """The catalog in an open database. Methods block; only one thread at a time may call those that write."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.changed = ChangedOwners()
        self._fingerprints = FingerprintCache()

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """Return a transaction for other queries on the tables, such as those of `inventory`."""
        return self.database.reading()

    @contextmanager
    def writing(
        self, changed: Collection[Owner] = (), new: Mapping[Owner, int] = _NONE_NEW
    ) -> Iterator[sa.Connection]:
        """Begin a transaction on the one connection that writes, for this class, `GroupCommit` and `Outbox`.

        At its end, `changed` are the services and types of the blobs that become live in it or stop being
        live, and `new` says how many submitted profiles it counts. Fingerprints that were cached before
        aren't used any more.
        """
        changes = self.database.changes
        try:
            with span("catalog", "transaction"):
                with self.database.writing() as connection:
                    yield connection
                    changes.note(connection, changed, new)
                    done = time.monotonic_ns()
                if (there := place()) is not None:
                    there.add("catalog", "COMMIT", done)
        finally:
            changes.noted(changed)
            self.changed.add(changed)

    def submitted(self, service: str, day: int) -> int | None:
        """Return how many profiles of a service were stored on a day, in days since 1970; None if unknown."""
        return self.database.changes.submitted(service, day)

    def made_nanos(self) -> int:
        """Return when the tables were made, in ns since 1970.

        Rows of profiles that were stored before then were rebuilt from the blobs.
        """
        with self.database.reading() as connection:
            return int(connection.execute(sa.select(MADE.c.at_nanos)).scalar_one())

    def live(self, selection: Selection, newest: int | None = None) -> list[Blob]:
        """Return the live blobs of a selection; at most the `newest` ones if given.

        They are in canonical order: by time, then by digest.
        """
        with self.database.reading() as connection:
            if newest is None:
                return [*read_in_order(connection, selected(selection))]
            return [*read_newest(connection, selected(selection), newest)][::-1]

    def live_table(self, selection: Selection) -> BlobTable:
        """Return the live blobs of a selection as columns, in canonical order."""
        with self.database.reading() as connection:
            return read_table(connection, selected(selection))

    def with_ids(self, ids: Iterable[int]) -> list[Blob]:
        """Return the blobs with these ids."""
        with self.database.reading() as connection:
            return [blob for batch in batches(ids) for blob in read_blobs(connection, BLOBS.c.id.in_(batch))]

    def live_after(self, owner: Owner, id_: int, limit: int) -> list[Blob]:
        """Return the first live blobs of a service and type whose ids are larger than this one, by id."""
        service, type_ = owner
        # An expression, so that the few newer blobs are looked at, and not all that the service has.
        is_of_owner = (SERIES.c.service.concat("") == service) & (SERIES.c.type == type_)
        where = BLOBS.c.live & (BLOBS.c.id > id_) & is_of_owner
        with self.database.reading() as connection:
            return [*read_blobs(connection, where, BLOBS.c.id, limit=limit)]

    def count(self, selection: Selection) -> int:
        """Return the number of live blobs in a selection."""
        with self.database.reading() as connection:
            query = sa.select(sa.func.count()).select_from(BLOBS).where(selected(selection))
            return int(connection.execute(query).scalar_one())

    def known_state(self, selection: Selection) -> SelectionState | None:
        """Return the cached state of a selection; None if there is none. No blobs are read."""
        if selection.service == EVERY_SERVICE:
            return None
        return self._fingerprints.get(selection, self._version(selection))

    def state(self, selection: Selection) -> SelectionState:
        """Return the fingerprint of a selection's live blobs, and how it is finer than they are."""
        return self.known_state(selection) or self.resolve(selection, lambda _: False)[0]

    def resolve(
        self, selection: Selection, is_wanted: Callable[[SelectionState], bool] = lambda _: True
    ) -> tuple[SelectionState, BlobTable | None]:
        """Return the state of a selection, and its live blobs if that state `is_wanted`, as of one moment.

        They are in canonical order: by time, then by digest.
        """
        with self._resolving(selection) as (state, connection):
            return state, read_table(connection, selected(selection)) if is_wanted(state) else None

    def resolve_newest(self, selection: Selection, limit: int) -> tuple[SelectionState, list[Blob]]:
        """Return a selection's state and its `limit` newest blobs in canonical order, as of one moment."""
        with self._resolving(selection) as (state, connection):
            return state, [*read_newest(connection, selected(selection), limit)][::-1]

    @contextmanager
    def _resolving(self, selection: Selection) -> Iterator[tuple[SelectionState, sa.Connection]]:
        version = self._version(selection)
        with self.database.reading() as connection:
            state = read_state(connection, selection)
            self._fingerprints.put(selection, version, state)
            yield state, connection

    def _version(self, selection: Selection) -> Hashable:
        """Return the version of the blobs of a selection's services and type."""
        changes = self.database.changes
        return tuple(changes.version(service, selection.type) for service in services_of(selection.service))

    def services(self, type_: str | None = None, scope: Scope = EVERY_SCOPE) -> list[str]:
        """Return the names of the services in a scope that have live blobs, of a type or of any, sorted."""
        has_live = sa.exists().where(BLOBS.c.series_id == SERIES.c.id, BLOBS.c.live)
        query = sa.select(SERIES.c.service).distinct().where(in_scope(scope), has_live)
        if type_ is not None:
            query = query.where(SERIES.c.type == type_)
        with self.database.reading() as connection:
            return list(connection.execute(query.order_by(SERIES.c.service)).scalars())

    @contextmanager
    def rows(self) -> Iterator[Iterator[Blob]]:
        """Read every blob's row, live or not, one by one: by series, then by time."""
        with self.database.reading() as connection:
            connection.execution_options(stream_results=True, max_row_buffer=100)
            yield read_blobs(connection, sa.true(), BLOBS.c.series_id, BLOBS.c.time_nanos)

    def expired(self, *, combined: bool, before_nanos: float, most_bytes: float) -> list[Blob]:
        """Return the live blobs, combined or single ones, that retention is to delete, the oldest first.

        These are the blobs whose last profile is from before `before_nanos`, in ns since 1970, and the oldest
        ones if all together take more than `most_bytes`. A bound that needs more than 64 bits is none.
        """
        of_kind = BLOBS.c.live & (IS_COMBINED if combined else BLOBS.c.inputs_size == 0)
        gone = []
        if before_nanos >= -_BEYOND:
            gone.append(BLOBS.c.end_nanos < int(before_nanos))
        if most_bytes < _BEYOND:
            size = sa.func.sum(BLOBS.c.size + BLOBS.c.inputs_size)
            with_newer = size.over(order_by=(BLOBS.c.end_nanos.desc(), BLOBS.c.id.desc()))
            sums = sa.select(BLOBS.c.id, with_newer.label("bytes")).where(of_kind).subquery()
            gone.append(BLOBS.c.id.in_(sa.select(sums.c.id).where(sums.c.bytes > int(most_bytes))))
        if not gone:
            return []
        with self.database.reading() as connection:
            return [*read_blobs(connection, of_kind & sa.or_(*gone), BLOBS.c.end_nanos, BLOBS.c.id)]

    def live_count(self, *, combined: bool) -> int:
        """Return the number of live blobs, combined or single ones."""
        of_kind = BLOBS.c.live & (IS_COMBINED if combined else BLOBS.c.inputs_size == 0)
        with self.database.reading() as connection:
            return int(connection.execute(sa.select(sa.func.count()).where(of_kind)).scalar_one())

    def days(self, before_nanos: int) -> list[tuple[Day, int]]:
        """Return each series' days that were over at `before_nanos`, and how many live blobs a roll-up takes.

        They are sorted by series, then by day.
        """
        query = (
            sa.select(*NAMED, DAY.label("day"), sa.func.count().label("blobs"))
            .select_from(NAMED_BLOBS)
            .where(BLOBS.c.live, before_nanos // DAY_NANOS > DAY, _IS_ROLLED_UP)
            .group_by(*NAMED, "day")
            .order_by(*NAMED, "day")
        )
        with self.database.reading() as connection:
            return [
                (Day(series_of(row.service, row.type, row.labels), row.day), row.blobs)
                for row in connection.execute(query)
            ]

    def live_on(self, day: Day) -> list[Blob]:
        """Return the live blobs of a day that a roll-up takes, by time and digest."""
        is_on = (BLOBS.c.series_id == series_id(day.series)) & BLOBS.c.live & (day.number == DAY)
        where = is_on & _IS_ROLLED_UP
        with self.database.reading() as connection:
            return [*read_blobs(connection, where, BLOBS.c.time_nanos, BLOBS.c.digest)]

    def combined(self) -> list[Blob]:
        """Return the live combined blobs."""
        with self.database.reading() as connection:
            return [*read_blobs(connection, BLOBS.c.live & IS_COMBINED)]

    def retired(self, service: str, type_: str) -> list[Blob]:
        """Return the blobs of a service and type that don't count and wait for deletion."""
        where = ~BLOBS.c.live & (SERIES.c.service == service) & (SERIES.c.type == type_)
        with self.database.reading() as connection:
            return [*read_blobs(connection, where)]

    def retired_owners(self) -> list[Owner]:
        """Return the services and types that have blobs which wait for deletion."""
        query = sa.select(SERIES.c.service, SERIES.c.type).distinct().select_from(NAMED_BLOBS)
        with self.database.reading() as connection:
            return [(service, type_) for service, type_ in connection.execute(query.where(~BLOBS.c.live))]

    def extents(self, selection: Selection, scope: Scope = EVERY_SCOPE) -> dict[str, Extent]:
        """Return the number and the times of the selected blobs of each service in a scope, sorted."""
        times = (sa.func.min(BLOBS.c.time_nanos), sa.func.max(BLOBS.c.time_nanos))
        query = (
            sa.select(SERIES.c.service, sa.func.count(), *times)
            .select_from(NAMED_BLOBS)
            .where(selected(selection), in_scope(scope))
            .group_by(SERIES.c.service)
            .order_by(SERIES.c.service)
        )
        with self.database.reading() as connection:
            return {service: Extent(*numbers) for service, *numbers in connection.execute(query)}

    def live_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of live blobs of each service and type; that with the newest blob comes last."""
        newest = (
            sa.select(SERIES.c.service, SERIES.c.type, sa.func.count().label("blobs"))
            .select_from(NAMED_BLOBS)
            .where(BLOBS.c.live)
            .group_by(SERIES.c.service, SERIES.c.type)
            .order_by(sa.func.max(BLOBS.c.time_nanos))
        )
        with self.database.reading() as connection:
            return {(row.service, row.type): row.blobs for row in connection.execute(newest)}

    def newest_ids(self, since_nanos: int) -> dict[Owner, int]:
        """Return the largest id of a live blob, by service and type: of those from `since_nanos` on."""
        query = (
            sa.select(SERIES.c.service, SERIES.c.type, sa.func.max(BLOBS.c.id))
            .select_from(NAMED_BLOBS)
            .where(IS_LIVE, BLOBS.c.time_nanos >= since_nanos)
            .group_by(SERIES.c.service, SERIES.c.type)
        )
        with self.database.reading() as connection:
            return {(service, type_): id_ for service, type_, id_ in connection.execute(query)}

    def counting_blob(self, name: BlobName) -> Blob | None:
        """Return the blob that counts the profile with this name; None if none does."""
        with self.database.reading() as connection:
            return read_counting(connection, [name]).blobs[name]

    def counting_ids(self, names: Iterable[BlobName]) -> dict[BlobName, int]:
        """Return the id of the blob that counts each profile; profiles that no blob counts are left out."""
        found: dict[BlobName, int] = {}
        with self.database.reading() as connection:
            for batch in batches(names):
                texts = [(index, *_named(name)) for index, name in enumerate(batch)]
                wanted = sa.values(*_WANTED, name="wanted").data(texts).cte("wanted")
                query = (
                    sa.select(wanted.c.number, PROFILES.c.blob_id)
                    .select_from(wanted)
                    .join(SERIES, sa.and_(*(SERIES.c[key] == wanted.c[key] for key in _SERIES_KEY)))
                    .join(
                        PROFILES,
                        sa.and_(
                            PROFILES.c.series_id == SERIES.c.id,
                            PROFILES.c.digest == wanted.c.digest,
                            PROFILES.c.time_nanos == wanted.c.time_nanos,
                        ),
                    )
                )
                found |= {batch[number]: blob for number, blob in connection.execute(query)}
        return found

    def inconsistent_blobs(self) -> list[Blob]:
        """Return the live blobs that don't count as many profiles as they hold, since rows were lost.

        A single blob holds one profile. A combined one has a line in its .inputs for each, so the size of
        that file tells.
        """
        line = sa.func.length(sa.cast(PROFILES.c.time_nanos, sa.Text)) + _LINE_BYTES
        others = sa.case((SERIES.c.labels == "", 1), else_=sa.func.length(SERIES.c.labels)) + 1
        text = _CHECKSUM_BYTES + sa.func.sum(
            line + sa.case((PROFILES.c.series_id == BLOBS.c.series_id, 0), else_=others)
        )
        query = (
            sa.select(BLOBS.c.id)
            .select_from(
                BLOBS.outerjoin(PROFILES, PROFILES.c.blob_id == BLOBS.c.id).outerjoin(
                    SERIES, SERIES.c.id == PROFILES.c.series_id
                )
            )
            .where(BLOBS.c.live)
            .group_by(BLOBS.c.id)
            .having(
                sa.case(
                    (BLOBS.c.inputs_size == 0, sa.func.count(PROFILES.c.blob_id) != 1),
                    else_=sa.func.coalesce(text, 0) != BLOBS.c.inputs_size,
                )
            )
        )
        with self.database.reading() as connection:
            ids = list(connection.execute(query).scalars())
        return self.with_ids(ids)

    def profiles_counted_by(self, ids: Iterable[int]) -> dict[int, list[BlobName]]:
        """Return the profiles that each of these blobs counts, by the blob's id."""
        query = sa.select(PROFILES.c.blob_id, *NAMED, PROFILES.c.time_nanos, PROFILES.c.digest).join(
            SERIES, PROFILES.c.series_id == SERIES.c.id
        )
        found: dict[int, list[BlobName]] = {}
        with self.database.reading() as connection:
            for batch in batches(ids):
                for blob, *named, time_nanos, digest in connection.execute(
                    query.where(PROFILES.c.blob_id.in_(batch))
                ):
                    name = BlobName(series_of(*named), Identity(time_nanos, digest))
                    found.setdefault(blob, []).append(name)
        return found

    @_tried_again
    def add(self, *blobs: tuple[BlobName, Facts], events: Sequence[Event] = ()) -> None:
        """Make blobs with one profile each live, have them count it, and put these events into the outbox."""
        with self.writing(_owners(name for name, _ in blobs)) as connection:
            if not add_profiles(connection, blobs):
                raise CatalogBusy("a blob of this name is being deleted: try again")
            add_events(connection, events)

    @_tried_again
    def claim(self, lease: Lease, name: BlobName, facts: Facts) -> bool:
        """Take the name of a combined blob that is going to be stored; return False if it is a live blob's.

        So it is, too, if a request that deletes a blob of this name may still arrive. If the blob isn't
        stored in the end, it is deleted as a retired one is. Raises LeaseLost.
        """
        with self.writing() as connection:
            lease.check(connection)
            return claim_blob(connection, name, facts, may_be_there=lease.is_settled)

    @_tried_again
    def replace(self, lease: Lease, combined: Combined, retired: Collection[int]) -> None:
        """Make a combined blob live and retire the blobs that it replaces, given by id, in one transaction.

        It counts all that the retired blobs counted. It may already be live, with fewer profiles. Raises
        LeaseLost.
        """
        name, facts, inputs_size, inputs = combined
        end = max(each.identity.time_nanos for each in (*inputs, name))
        with self.writing(_owners([name])) as connection:
            lease.check(connection)
            new = put_blob(connection, name, facts, end, inputs_size)
            every = [{"blob": blob} for blob in {new, *retired}]
            unassign_profiles(connection, [row["blob"] for row in every])
            connection.execute(
                sa.update(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")).values(live=BLOBS.c.id == new),
                every,
            )
            assign_profiles(connection, new, name, inputs)

    @_tried_again
    def retire(self, lease: Lease, blobs: Collection[Blob]) -> None:
        """Have blobs count nothing any more; they wait for deletion. Raises LeaseLost."""
        ids = [blob.id for blob in blobs]
        if ids:
            with self.writing(_owners(blob.name for blob in blobs)) as connection:
                lease.check(connection)
                series = series_with(connection, ids)
                unassign_profiles(connection, ids)
                every = [{"blob": blob} for blob in ids]
                connection.execute(
                    sa.update(BLOBS).where(BLOBS.c.id == sa.bindparam("blob")).values(live=False), every
                )
                drop_empty_series(connection, series)  # those of profiles inside, which no row names any more

    @_tried_again
    def drop(self, blobs: Collection[Blob]) -> None:
        """Drop the rows of live blobs, and of the profiles that they count."""
        ids = [blob.id for blob in blobs]
        if ids:
            with self.writing(_owners(blob.name for blob in blobs)) as connection:
                series = series_with(connection, ids)
                unassign_profiles(connection, ids)
                delete_blobs(connection, ids)
                drop_empty_series(connection, series)

    @_tried_again
    def drop_retired(self, lease: Lease, blobs: Collection[Blob]) -> None:
        """Drop the rows of retired blobs whose files are deleted. Raises LeaseLost."""
        ids = [blob.id for blob in blobs]
        if ids:
            with self.writing() as connection:
                lease.check(connection)
                series = series_with(connection, ids)
                delete_blobs(connection, ids)
                drop_empty_series(connection, series)

    def live_among(self, names: Iterable[BlobName]) -> set[BlobName]:
        """Return those of these blobs that are live."""
        found: set[BlobName] = set()
        with self.database.reading() as connection:
            for batch in batches(names):
                texts = [(index, *_named(name)) for index, name in enumerate(batch)]
                wanted = sa.values(*_WANTED, name="wanted").data(texts).cte("wanted")
                same = (BLOBS.c[column] == wanted.c[column] for column in ("time_nanos", "digest"))
                query = (
                    sa.select(wanted.c.number)
                    .select_from(wanted)
                    .join(SERIES, sa.and_(*(SERIES.c[key] == wanted.c[key] for key in _SERIES_KEY)))
                    .join(BLOBS, sa.and_(BLOBS.c.series_id == SERIES.c.id, *same))
                    .where(BLOBS.c.live)
                )
                found |= {batch[number] for number in connection.execute(query).scalars()}
        return found


def add_events(connection: sa.Connection, events: Iterable[Event]) -> None:
    """Put events into the outbox, inside a transaction of the caller's."""
    for event in events:
        connection.execute(sa.insert(OUTBOX).values(_waiting(event)))


def _owners(names: Iterable[BlobName]) -> set[Owner]:
    return {name.series[:2] for name in names}


def _named(name: BlobName) -> tuple[str | int, ...]:
    """Return a profile's values of the columns of `_WANTED` after the number."""
    series, (time_nanos, digest) = name
    return series.service, series.type, series.labels_text, time_nanos, digest


def _waiting(event: Event) -> dict[str, Any]:
    row = {"event": event.id, "created_nanos": event.created_nanos, "body": event.body}
    return {**row, "attempts": 0, "due_nanos": event.created_nanos}
