"""`pgo-collector backup` and `pgo-collector restore`: copy, print a summary, and return the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pprof_merge.streams import say
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.backups.backup import Report, back_up
from pgo_collector.backups.restore import restore
from pgo_collector.errors import BackupUnusable
from pgo_collector.settings import read_settings
from pgo_collector.store.store import database_of, reason_of, storage_of

_SOME_LOST = 1


def backup_to(target: Path) -> int:
    """Back up the data folder; return the exit code, 1 if any of it could not be copied."""
    settings = read_settings()
    blobs = storage_of(settings)
    return _reported("backed up", lambda: back_up(settings.directory, database_of(settings), blobs, target))


def restore_from(target: Path) -> int:
    """Create a data folder from a backup; return the exit code, 1 if any of it could not be copied."""
    directory = read_settings().directory
    return _reported("restored", lambda: restore(target, directory))


def _reported(done: str, copy: Callable[[], Report]) -> int:
    try:
        report = copy()
    except OSError as error:
        raise BackupUnusable(f"{error.filename or 'backup'}: {reason_of(error)}") from error
    except SQLAlchemyError as error:
        raise BackupUnusable(f"catalog: {reason_of(error)}") from error
    for loss in report.lost:
        say(f"pgo-collector: not {done}: {loss}")
    print(
        f"{done}: {report.blobs} profiles, {report.releases} files of releases; "
        f"{report.copied_bytes} bytes were copied"
    )
    return _SOME_LOST if report.lost else 0
