"""Commit: validated profiles become blobs that count, many at once.

    Commits.add → the queue → GroupCommit.commit, on the store's writing thread → the answer of each

The storage gets the blobs together, and one transaction counts them all. The rows come before the blobs:
until the transaction ends, another collector's that is about the same profile waits, be it one that stores it
or one that deletes it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.blobs.blobs import Blobs
from pgo_collector.blobs.storage import MISSING, UNDATED, NewBlob, Storage
from pgo_collector.catalog.catalog import Catalog, add_events
from pgo_collector.catalog.database import Owner
from pgo_collector.catalog.faults import Fault, fault_of, may_be_committed
from pgo_collector.catalog.rows import (
    Blob,
    add_profiles,
    names_taken,
    read_counting,
    read_times,
    remove_profiles,
)
from pgo_collector.errors import CatalogBusy
from pgo_collector.model.facts import Announce, Facts
from pgo_collector.model.series import BlobName, Identity, Series, inputs_name
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.store.store import Store, not_stored
from pgo_collector.submits.clocks import Clocks
from pgo_collector.submits.function_metrics import FunctionMetrics
from pgo_collector.traces.spans import Place, place, shared, span

# How often profiles are tried together, and the longest pause before a further try.
_TRIES = 3
_PAUSE_SECONDS = 0.05
# Submits that share a transaction. A bound, so that the first of them don't wait for hundreds of others.
_MOST_AT_ONCE = 64
# How long a batch waits for the senders of the one before, as a part of the time that that one took.
_PATIENCE = 0.5

T = TypeVar("T")


class Submission(NamedTuple):
    """A validated profile to store: its bytes, or the file in incoming/ that they are in.

    A profile that doesn't say when it was taken gets the time `created_nanos`, or else the present time. One
    that says a time too far after now gets the present time, too: its sender's clock is ahead.
    """

    content: bytes | Path
    series: Series
    facts: Facts
    created_nanos: int | None = None


class Submitted(NamedTuple):
    """A stored profile: its facts, its name, and whether it wasn't stored before.

    The name is that of its own blob, even if a combined blob counts the profile. `seconds_off` says by how
    much the sender's clock is ahead, negative if the profile is older than retention keeps.
    """

    facts: Facts
    name: BlobName
    is_new: bool
    seconds_off: float = 0.0


class Commits:
    """Stores validated profiles; those that are added at the same time share syncs and a transaction."""

    def __init__(
        self, store: Store, *announcers: Announce, most_ahead: float = inf, keep_days: float = inf
    ) -> None:
        """Take the store; `announcers` make the events of stored profiles.

        `most_ahead` is how far after now a profile may say that it was taken, in seconds, and `keep_days` how
        long retention keeps it.
        """
        self.clocks = Clocks()
        self.functions = FunctionMetrics()
        self._keep_nanos = keep_days * DAY_NANOS
        self.group_commit = GroupCommit(store.blobs, store.catalog, announcers, most_ahead)
        self._store = store
        self._queue = _Queue()
        self.expecting = self._queue.expecting

    async def add(self, submission: Submission) -> Submitted:
        """Store a validated profile durably and count it, unless it is counted already.

        A file that the profile is in is the caller's to delete. Raises NotStored, CatalogFails, StorageFails
        or NameTooLong.
        """
        future: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        if self._queue.put(_Waiting(submission, future, place(), time.monotonic_ns())):
            self._store.writer.submit(self._commit_waiting, future.get_loop())
        try:
            stored = await future
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("profile", error) from error
        said = submission.facts.time_nanos or submission.created_nanos
        time_nanos = stored.name.identity.time_nanos
        ahead, age = (said or 0) - time_nanos, time.time_ns() - time_nanos
        off = ahead if ahead > 0 else -age if said and age > self._keep_nanos else 0
        if off or (said and self.clocks.off):
            self.clocks.note(submission.series, off / 10**9)
            return stored._replace(seconds_off=off / 10**9)
        return stored

    def _commit_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Store the first profiles that wait; a further call stores those beyond a batch."""
        with self._queue.batch(self._store.catalog.database.gather_seconds) as (batch, is_more):
            submissions, futures, places, since = zip(*batch, strict=True)
            for there, asked in zip(places, since, strict=True):
                if there is not None:
                    there.add("store", "queue", asked)
            results: Sequence[Submitted | Exception]
            try:
                with shared([*filter(None, places)]), span("store", "commit", profiles=len(batch)):
                    self._store.claim.check()
                    results = self.group_commit.commit(submissions)
            except Exception as error:  # noqa: BLE001 - the callers that wait get it
                results = [error] * len(futures)
            loop.call_soon_threadsafe(settle, futures, results)
        if is_more:
            self._store.writer.submit(self._commit_waiting, loop)


def settle(futures: Sequence[asyncio.Future[T]], outcomes: Sequence[T | Exception]) -> None:
    """Give each future its outcome, unless it was cancelled."""
    for future, outcome in zip(futures, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class _Waiting(NamedTuple):
    """A profile that waits to be stored since a time of the monotonic clock, in ns; see `Commits.add`."""

    submission: Submission
    future: asyncio.Future[Submitted]
    place: Place | None
    since: int


class _Queue:
    """Profiles that wait to be stored, and how many more are expected. The event loop fills it, the writer
    empties it.

    Senders that send one profile after another would fall into two groups: while the profiles of one are
    stored, the other's wait, and then those are stored before the first group's next ones have come. So after
    each batch, the next one waits a little until there are as many profiles as there were.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        # Whether a call of the writer is on its way, which will take profiles. It is whenever some wait.
        self._is_called = False
        self._expected = 0
        # The profiles that there were at the end of the last batch: its own, and those that came meanwhile.
        # The next batch waits for as many until then, a time of the monotonic clock in s.
        self._usual, self._until = 0, 0.0
        # Held for each look at these attributes; notified when there may be enough.
        self._changed = threading.Condition()

    @contextmanager
    def expecting(self, content: bytes | Path = b"") -> Iterator[None]:
        """Expect one more profile during the block, unless its content is in a file: those take too long."""
        more = 1 if isinstance(content, bytes) else 0
        self.put(expected=more)
        try:
            yield
        finally:
            self.put(expected=-more)

    def put(self, *profiles: _Waiting, expected: int = 0) -> bool:
        """Add profiles, expect more or fewer, and wake the writer if what it may wait for is there.

        Return whether the writer has to be called to take them.
        """
        with self._changed:
            self._waiting.extend(profiles)
            self._expected += expected
            if self._is_complete() or self._has_usual():
                self._changed.notify()
            is_uncalled = not self._is_called and bool(self._waiting)
            self._is_called = self._is_called or is_uncalled
            return is_uncalled

    @contextmanager
    def batch(self, seconds: float) -> Iterator[tuple[list[_Waiting], bool]]:
        """Yield the first profiles, to be stored during the block, once all that are expected are here, or
        after this time; and whether the writer has to be called again, for more of them.
        """
        with self._changed:
            self._changed.wait_for(self._has_usual, min(seconds, self._until - time.monotonic()))
            self._changed.wait_for(self._is_complete, seconds)
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
            is_more = self._is_called = bool(self._waiting)
        began = time.monotonic()
        yield batch, is_more
        with self._changed:
            ended = time.monotonic()
            self._usual = len(batch) + len(self._waiting) + self._expected
            self._until = ended + _PATIENCE * (ended - began)

    def _is_complete(self) -> bool:
        """Return whether no profile is expected any more, or there are enough for a full batch."""
        return not self._expected or len(self._waiting) >= _MOST_AT_ONCE

    def _has_usual(self) -> bool:
        """Return whether as many profiles are here or expected as at the end of the last batch."""
        return len(self._waiting) + self._expected >= min(self._usual, _MOST_AT_ONCE)


class _Conflict(Exception):
    """A transaction met one of another collector's. The profiles at the places `busy` aren't tried again."""

    def __init__(self, reason: Exception, busy: Collection[int] = ()) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.busy = busy


def _busy(connection: sa.Connection, new: Collection[BlobName], names: Sequence[BlobName]) -> _Conflict:
    """Return the conflict of new profiles some of whose names are those of blobs that aren't live."""
    taken = names_taken(connection, new)
    reason = CatalogBusy("the same profile was deleted, and isn't gone yet: send it again")
    return _Conflict(reason, {place for place, name in enumerate(names) if name in taken})


class _NoneStored(Exception):
    """No blob could be stored, so there is nothing to commit."""


class UndatedTimes:
    """Times of profiles that don't say when they were taken, or a time too far ahead, while they are stored.

    Such a profile gets the time at which it comes, which its blob has in its name. If the attempt to store it
    fails in the end, its blob may stay, and a retry must not make a second one under another time: so the
    time is an object in an area beside the blobs, from before the blob is stored until it is counted. Methods
    block, and raise OSError.
    """

    def __init__(self, blobs: Storage) -> None:
        self._storage = blobs.area(UNDATED)

    def take(self, series: Series, digest: str) -> int:
        """Return the time of the attempts to store a profile, in ns since 1970; of the first one, it is now.

        No other transaction may be about the same profile: see `Database.serialize`.
        """
        name, now = _undated_object(series, digest), time.time_ns()
        try:
            self._storage.add(name, str(now).encode(), durably=False)  # a start counts what is stored
        except FileExistsError:
            return int(self._storage.read(name))
        return now

    def drop(self, counted: Iterable[BlobName]) -> None:
        """Delete the times of profiles that are counted now."""
        names = [_undated_object(name.series, name.identity.digest) for name in counted]
        with suppress(OSError):  # it does no harm: a retry looks into the catalog first
            self._storage.delete(names)

    def drop_all(self) -> None:
        """Delete all times, when all blobs are counted."""
        for error in self._storage.delete([of.name for of in self._storage.objects()]).values():
            raise error


def _undated_object(series: Series, digest: str) -> str:
    return hashlib.sha256(f"{series.folders} {digest}".encode()).hexdigest()


class GroupCommit:
    """Stores validated profiles, on the thread that makes all changes: see `Store.write`."""

    def __init__(
        self, blobs: Blobs, catalog: Catalog, announcers: Sequence[Announce], most_ahead: float
    ) -> None:
        self._blobs = blobs
        self._catalog = catalog
        self._announcers = announcers
        self._most_ahead_nanos = most_ahead * 10**9
        self._undated = UndatedTimes(blobs.storage)

    def commit(self, submissions: Sequence[Submission]) -> list[Submitted | Exception]:
        """Store each profile durably and count it, unless it is counted already; return the result of each.

        The result is an error if that failed.
        """
        left = dict(enumerate(submissions))
        results: dict[int, Submitted | Exception] = {}
        for _ in range(_TRIES):
            try:
                committed = self._commit([*left.values()])
            except _Conflict as conflict:
                numbers = [*left]
                results |= dict.fromkeys(numbers, conflict.reason)
                for place in conflict.busy:
                    del left[numbers[place]]
                if not left:
                    break
                time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - spreads load
            else:
                results |= zip(left, committed, strict=True)
                break
        else:
            if len(left) > 1:  # one of them may be in another collector's hands
                results |= {number: self.commit([each])[0] for number, each in left.items()}
        return [results[number] for number in range(len(submissions))]

    def _commit(self, submissions: Sequence[Submission]) -> list[Submitted | Exception]:
        """Store profiles and count them in one transaction; return the result of each.

        The blobs that can't be stored aren't counted. If the transaction fails, none is; their files stay if
        it may have been committed all the same. Raises _Conflict if it may be tried again.
        """
        names: list[BlobName] = []
        latest = time.time_ns() + self._most_ahead_nanos
        new: dict[BlobName, Submission] = {}
        failures: dict[BlobName, Exception] = {}
        changed: Counter[Owner] = Counter()
        stored: list[tuple[BlobName, Facts]] = []
        try:
            with suppress(_NoneStored), self._catalog.writing(changed, new=changed) as connection:
                said = [each.facts.time_nanos or each.created_nanos or 0 for each in submissions]
                times = [nanos if nanos <= latest else 0 for nanos in said]
                named = self._names(connection, submissions, times)
                counting, known, first = read_counting(connection, named)
                # The same bytes say the same time, so they were stored when that was still too far ahead.
                moved = {
                    name: name._replace(identity=name.identity._replace(time_nanos=first[name]))
                    for name, submission in zip(named, submissions, strict=True)
                    if counting[name] is None and name in first and submission.facts.time_nanos
                }
                if moved:
                    counting |= read_counting(connection, [*moved.values()]).blobs
                names += (moved.get(name, name) for name in named)
                firsts = dict(zip(reversed(names), reversed(submissions), strict=True))
                new = {name: firsts[name] for name in reversed(firsts) if counting[name] is None}
                changed.update(name.series[:2] for name in new)
                if not add_profiles(connection, [(name, each.facts) for name, each in new.items()], known):
                    raise _busy(connection, new, names)
                if found := self._place(new, firsts, counting):
                    failures.update(found)
                    changed.subtract(name.series[:2] for name in new if name in failures)
                    self._take_back(connection, new, failures)
                stored = [(name, new[name].facts) for name in new if name not in failures]
                if events := [
                    event for each in self._announcers for known in stored for event in each(*known)
                ]:
                    add_events(connection, events)
            if undated := {name for name, nanos in zip(names, times, strict=True) if not nanos}:
                self._undated.drop(name for name, _ in stored if name in undated)
        except SQLAlchemyError as error:
            if fault_of(error) is Fault.CONFLICT:
                raise _Conflict(error) from error
            if not may_be_committed(error):
                self._discard(new.keys() - failures.keys())
            if len(names) < len(submissions):
                return [error] * len(submissions)
            failures |= {name: failures.get(name, error) for name in names}
        return [
            failures.get(name) or Submitted(submission.facts, name, new.get(name) is submission)
            for name, submission in zip(names, submissions, strict=True)
        ]

    def _discard(self, uncounted: Collection[BlobName]) -> None:
        """Delete the blobs of a transaction that failed, if no other collector may count them by now."""
        if self._catalog.database.is_alone:
            self._blobs.discard_all(uncounted)  # one that stays is counted at the next start
            self._blobs.remove_folders(uncounted)

    @staticmethod
    def _take_back(
        connection: sa.Connection,
        new: Mapping[BlobName, Submission],
        failures: Mapping[BlobName, Exception],
    ) -> None:
        """Delete the rows of profiles whose blobs couldn't be stored. Raises _NoneStored if all couldn't."""
        failed = new.keys() & failures.keys()
        if failed and len(failed) == len(new):
            raise _NoneStored
        remove_profiles(connection, failed)

    def _names(
        self, connection: sa.Connection, submissions: Sequence[Submission], times: Sequence[int]
    ) -> list[BlobName]:
        """Return the name of each profile, of these times in ns since 1970.

        One whose time is 0 gets the one that the same bytes were stored with, if they were: it is a retry.
        """
        keys = [(each.series, each.facts.digest) for each in submissions]
        if not all(times):
            # Sorted, so that of two transactions with the same profiles one waits, and not both for ever.
            undated = sorted({key for key, time_nanos in zip(keys, times, strict=True) if not time_nanos})
            for series, digest in undated:
                self._catalog.database.serialize(connection, f"{series} {digest}")
            stored = zip(undated, read_times(connection, undated), strict=True)
            first = {key: min(found) if found else self._undated.take(*key) for key, found in stored}
            times = [time_nanos or first[key] for key, time_nanos in zip(keys, times, strict=True)]
        return [
            BlobName(series, Identity(time_nanos, digest))
            for (series, digest), time_nanos in zip(keys, times, strict=True)
        ]

    def _place(
        self,
        new: Mapping[BlobName, Submission],
        submissions: Mapping[BlobName, Submission],
        counting: Mapping[BlobName, Blob | None],
    ) -> dict[BlobName, OSError]:
        """Write the blobs of new profiles; return the errors of those that couldn't be written.

        A counted profile whose blob is missing is written again, too.
        """
        blobs: list[NewBlob] = []
        names: dict[str, BlobName] = {}
        for name, submission in submissions.items():
            blob = counting[name]
            # An error at the very end of a commit may leave a profile counted, whose file was then deleted.
            is_gone = blob is not None and blob.name == name and self._blobs.size(name) == MISSING
            if name in new or is_gone:
                names[text := str(name)] = name
                blobs.append(NewBlob(text, inputs_name(text), submission.content, submission.facts.size))
        return {names[text]: error for text, error in self._blobs.storage.create(blobs).items()}
