"""Group commit: validated profiles become blobs that count, many at once.

The storage gets them together, and one transaction counts them all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.catalog import Catalog, add_events
from pgo_collector.catalog.faults import may_be_committed
from pgo_collector.catalog.rows import Blob, add_profiles, read_counting_blob
from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.facts import Announce, Facts
from pgo_collector.model.series import Series
from pgo_collector.storage.storage import MISSING
from pgo_collector.store.blobs import Blobs, Content


class Submission(NamedTuple):
    """A profile to store: its bytes are `content`, to be written to the file `part`, or in that file already.

    A profile that doesn't say when it was taken gets the time `created_nanos`, or else the present time.
    """

    part: Path
    series: Series
    facts: Facts
    created_nanos: int | None = None
    content: bytes | None = None


class Submitted(NamedTuple):
    """A stored profile: its facts, its name, and whether it wasn't stored before.

    The name is that of its own blob, even if a combined blob counts the profile.
    """

    facts: Facts
    name: BlobName
    is_new: bool


class GroupCommit:
    """Stores validated profiles, on the thread that makes all changes: see `Store.write`."""

    def __init__(self, blobs: Blobs, catalog: Catalog, announce: Announce) -> None:
        self._blobs = blobs
        self._catalog = catalog
        self._announce = announce

    def commit(self, submissions: Sequence[Submission]) -> list[Submitted | Exception]:
        """Store each profile durably and count it, unless it is counted already; return the result of each.

        The result is an error if that failed; otherwise the file `part` is gone.
        """
        names: list[BlobName] = []
        for submission in submissions:
            names.append(self._name(submission, names))
        failures: dict[BlobName, Exception] = {}
        new = self._store(names, submissions, failures)
        return [
            failures.get(name) or self._submitted(submission, name, is_new=new.get(name) is submission)
            for name, submission in zip(names, submissions, strict=True)
        ]

    def _name(self, submission: Submission, earlier: Sequence[BlobName]) -> BlobName:
        """Return the name of a profile.

        A profile without a time gets the one that the same bytes were stored with, if they were: it is a
        retry.
        """
        series, digest = submission.series, submission.facts.digest
        time_nanos = submission.facts.time_nanos or submission.created_nanos
        if not time_nanos:
            times = self._catalog.times(series, digest)
            times += [
                name.identity.time_nanos
                for name in earlier
                if name.series == series and name.identity.digest == digest
            ]
            time_nanos = min(times, default=0) or time.time_ns()
        return BlobName(series, Identity(time_nanos, digest))

    def _store(
        self,
        names: Sequence[BlobName],
        submissions: Sequence[Submission],
        failures: dict[BlobName, Exception],
    ) -> dict[BlobName, Submission]:
        """Make blobs of the profiles that aren't counted; return these profiles.

        In one transaction all blobs whose files are durable are counted. The others are in `failures`; if the
        transaction fails, all are. Their files stay if it may have been committed all the same.
        """
        new: dict[BlobName, Submission] = {}
        try:
            with self._catalog.writing(*names) as connection:
                counting = {name: read_counting_blob(connection, name) for name in names}
                new = self._place(names, submissions, counting, failures)
                entries = [(name, new[name].facts) for name in new if name not in failures]
                events = [event for name, facts in entries for event in self._announce(name, facts)]
                add_profiles(connection, entries)
                add_events(connection, events)
        except SQLAlchemyError as error:
            if not may_be_committed(error):
                uncounted = new.keys() - failures.keys()
                self._blobs.discard_all(uncounted)  # one that stays is counted at the next start
                self._blobs.remove_folders(uncounted)
            failures |= {name: failures.get(name, error) for name in names}
        return new

    def _place(
        self,
        names: Sequence[BlobName],
        submissions: Sequence[Submission],
        counting: Mapping[BlobName, Blob | None],
        failures: dict[BlobName, Exception],
    ) -> dict[BlobName, Submission]:
        """Write the blobs of the profiles that aren't counted; return these profiles.

        If a blob can't be written, its profile is in `failures`, too. A counted profile whose blob is missing
        is written again, but isn't returned.
        """
        new: dict[BlobName, Submission] = {}
        contents: dict[BlobName, Content] = {}
        for name, submission in zip(names, submissions, strict=True):
            blob = counting[name]
            # An error at the very end of a commit may leave a profile counted, whose file was then deleted.
            is_gone = blob is not None and blob.name == name and self._blobs.size(name) == MISSING
            if name in new or (blob is not None and not is_gone):
                continue
            if blob is None:
                new[name] = submission
            contents[name] = Content(submission.part, submission.content, submission.facts.size)
        failures.update(self._blobs.create(contents))
        return new

    @staticmethod
    def _submitted(submission: Submission, name: BlobName, *, is_new: bool) -> Submitted | Exception:
        try:
            submission.part.unlink(missing_ok=True)
        except OSError as error:
            return error
        return Submitted(submission.facts, name, is_new)
