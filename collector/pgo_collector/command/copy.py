"""`pgo-collector copy`: copy all that a data folder or bucket has, print a summary, return the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pprof_merge.streams import say

from pgo_collector.backups.moving import copy_all
from pgo_collector.blobs.storage import Storage
from pgo_collector.errors import BackupUnusable
from pgo_collector.settings import Settings, read_settings
from pgo_collector.store.folder import DataFolder, folder_storage
from pgo_collector.store.store import reason_of, storage_at

_SOME_LOST = 1


def copy(source: str, target: str, *, delete: bool) -> int:
    """Copy what `source` has to `target`, each a data folder or the URL of a bucket.

    Returns the exit code, 1 if any could not be copied. Raises CannotStart and StorageFails.
    """
    settings = read_settings()
    try:
        with _target(target, settings) as storage:
            report = copy_all(_source(source, settings), storage, delete=delete)
    except OSError as error:
        raise BackupUnusable(f"{error.filename or 'copy'}: {reason_of(error)}") from error
    for loss in report.lost:
        say(f"pgo-collector: not copied: {loss}")
    left = report.surplus - report.deleted
    print(
        f"copied: {report.objects} objects, {report.bytes} bytes; of those that {source} lacks,"
        f" {report.deleted} were deleted and {left} left"
    )
    return _SOME_LOST if report.lost else 0


def _source(place: str, settings: Settings) -> Storage:
    if "://" in place:
        return storage_at(place, settings)
    if not (Path(place) / "blobs").is_dir():
        raise BackupUnusable(f"{place}: it isn't a data folder; name one, or the URL of a bucket")
    return folder_storage(Path(place))


@contextmanager
def _target(place: str, settings: Settings) -> Iterator[Storage]:
    """Open a place to write to; a data folder is locked meanwhile, so that no server uses it."""
    if "://" in place:
        storage = storage_at(place, settings)
        storage.verify()
        yield storage
    else:
        with DataFolder(Path(place)) as folder:
            yield folder_storage(folder.path)
