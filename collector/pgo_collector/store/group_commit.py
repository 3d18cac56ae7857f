"""Group commit: profiles that workers have validated become blobs that count, many in one transaction.

Each folder is synced once for all blobs that go into it, and one transaction counts them all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.catalog import Catalog, add_profiles
from pgo_collector.catalog.rows import Blob, read_counting
from pgo_collector.model.blob_names import BlobName, Identity
from pgo_collector.model.facts import Announce, Facts
from pgo_collector.model.series import Series
from pgo_collector.store.blobs import MISSING, Blobs
from pgo_collector.store.folder import sync_file, sync_folder, write_file


class Submission(NamedTuple):
    """A validated profile to store. The file `part` has its bytes, or will get them from `content`.

    A profile without a time of its own gets `created_nanos`, in ns since 1970, or else the time of now.
    """

    part: Path
    series: Series
    facts: Facts
    created_nanos: int | None = None
    content: bytes | None = None


class Submitted(NamedTuple):
    """A stored profile: its facts, the name of its blob, and whether this submission stored it.

    If a combined blob counts the profile, the name is the one that its own blob had.
    """

    facts: Facts
    name: BlobName
    is_new: bool


class GroupCommit:
    """Commits submissions. Call it on the thread that makes all changes: see `Store.write`."""

    def __init__(self, blobs: Blobs, catalog: Catalog, announce: Announce) -> None:
        self._blobs = blobs
        self._catalog = catalog
        self._announce = announce

    def commit(self, submissions: Sequence[Submission]) -> list[Submitted | Exception]:
        """Store each profile durably and count it, unless it is counted already.

        Return what came of each: Submitted, after which its file `part` is gone, or the error.
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
        """Return the name of the blob of a submission; `earlier` are the names in the same commit.

        A profile without a time gets the time of the same bytes if they are stored: it is a retry.
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
        """Make blobs of the submissions that aren't counted yet, and count all that didn't fail, or none.

        Return the new blobs by name, and add the errors to `failures`.
        """
        new: dict[BlobName, Submission] = {}
        try:
            with self._catalog.writing(*names) as connection:
                counting = {name: read_counting(connection, name) for name in names}
                new = self._place(names, submissions, counting, failures)
                entries = [(name, new[name].facts) for name in new if name not in failures]
                events = [event for name, facts in entries for event in self._announce(name, facts)]
                add_profiles(connection, entries, events)
        except SQLAlchemyError as error:
            for name in new.keys() - failures.keys():
                with suppress(OSError):  # a blob that stays doesn't count; the next start counts it
                    self._blobs.discard(name)
            self._blobs.remove_folders(new.keys() - failures.keys())
            failures |= {name: failures.get(name, error) for name in names}
        return new

    def _place(
        self,
        names: Sequence[BlobName],
        submissions: Sequence[Submission],
        counting: Mapping[BlobName, Blob | None],
        failures: dict[BlobName, Exception],
    ) -> dict[BlobName, Submission]:
        """Make durable blobs of the submissions that aren't counted yet, and restore missing files of blobs.

        Return the new blobs by name, also those that failed, and add the errors to `failures`.
        """
        new: dict[BlobName, Submission] = {}
        folders: dict[Path, list[BlobName]] = {}
        for name, submission in zip(names, submissions, strict=True):
            blob = counting[name]
            # A commit can fail at its very end with the rows written: the file was then removed.
            is_gone = blob is not None and blob.name == name and self._blobs.size(name) == MISSING
            if name in new or (blob is not None and not is_gone):
                continue
            if blob is None:
                new[name] = submission
            try:
                if submission.content is None:
                    sync_file(submission.part)
                else:
                    write_file(submission.part, submission.content)
                if blob is None:
                    self._blobs.discard(name)  # a file may be there that never came to count
                folders.setdefault(self._blobs.place(submission.part, name), []).append(name)
            except OSError as error:
                failures[name] = error
        for folder, inside in folders.items():
            try:
                sync_folder(folder)
            except OSError as error:
                failures.update(dict.fromkeys(inside, error))
        return new

    @staticmethod
    def _submitted(submission: Submission, name: BlobName, *, is_new: bool) -> Submitted | Exception:
        try:
            submission.part.unlink(missing_ok=True)
        except OSError as error:
            return error
        return Submitted(submission.facts, name, is_new)
