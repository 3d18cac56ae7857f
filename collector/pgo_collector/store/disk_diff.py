"""A survey of blobs/ at a start: where it differs from the catalog, found folder by folder.

What both have, which is almost all, is not kept; so a start takes no memory for what is stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from pgo_collector.catalog.rows import Blob
from pgo_collector.model.blob_names import BLOB_SUFFIX, BlobName
from pgo_collector.store.blobs import INPUTS_SUFFIX

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NOTHING: Mapping[str, Blob] = MappingProxyType({})


@dataclass(slots=True)
class Differences:
    """What blobs/ and the catalog don't have alike."""

    # Blobs with .inputs that the catalog doesn't have, or not of that size: the size of these.
    combined: dict[BlobName, int] = field(default_factory=dict)
    # Of these, those that the catalog doesn't have.
    unknown: set[BlobName] = field(default_factory=set)
    # Blobs without .inputs that the catalog doesn't have.
    profiles: list[BlobName] = field(default_factory=list)
    # The ids of live blobs that aren't there.
    missing: list[int] = field(default_factory=list)
    # Blobs that the catalog has as live combined ones, and that have no .inputs: their ids.
    unlisted: dict[BlobName, int] = field(default_factory=dict)
    # .inputs without a blob.
    orphans: list[Path] = field(default_factory=list)
    # Folders in which nothing is.
    empty: list[Path] = field(default_factory=list)
    # The rest.
    strangers: list[Path] = field(default_factory=list)


def find_differences(
    root: Path, rows: Iterable[Blob], looked: Callable[[], None] = lambda: None
) -> Differences:
    """Looks at all that is below blobs/, with the rows of the catalog by series and time. Raises OSError.

    Calls `looked` for every folder.
    """
    return _Walk(root, looked).of(rows)


class _Walk:
    """Paths are texts below the root: of a hundred thousand folders, to make Paths takes most of the time."""

    def __init__(self, root: Path, looked: Callable[[], None]) -> None:
        self._root = root
        self._looked = looked
        self._found = Differences()
        # Of the folders of series that have rows, the folders in them that are no days.
        self._known: dict[str, list[str]] = {}

    def of(self, rows: Iterable[Blob]) -> Differences:
        for series, of_series in groupby(rows, key=lambda row: row.name.series):
            folder = series.folders
            inside = self._compare_files(folder, _NOTHING)
            days = set(filter(_DAY.fullmatch, inside))
            self._known[folder] = [name for name in inside if name not in days]
            for day, of_day in groupby(of_series, key=_day_folder):
                days.discard(day)
                self._compare(f"{folder}/{day}", {_file(row): row for row in of_day})
            for day in sorted(days):
                self._compare(f"{folder}/{day}", _NOTHING)
        self._look("")
        return self._found

    def _look(self, folder: str) -> None:
        """A folder without a row, and what is below it; of a series that has rows, only what isn't a day."""
        known = self._known.pop(folder, None)
        for name in self._compare_files(folder, _NOTHING) if known is None else known:
            self._look(f"{folder}/{name}" if folder else name)

    def _compare(self, folder: str, rows: Mapping[str, Blob]) -> None:
        """The folder of a day, and what is below it, where nothing belongs."""
        for name in self._compare_files(folder, rows):
            self._look(f"{folder}/{name}")

    def _compare_files(self, folder: str, rows: Mapping[str, Blob]) -> list[str]:
        """The files of a folder, of which the catalog has these rows by their names; returns its folders."""
        self._looked()
        path = f"{self._root}/{folder}"
        listed = _listed(path)
        folders, files = listed or ([], set[str]())
        if listed is not None and not folders and not files and folder:
            self._found.empty.append(Path(path))
        for name in sorted(files):
            if name.endswith(INPUTS_SUFFIX):
                blob = name.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX
                self._note_inputs(f"{folder}/{name}", rows.get(blob), has_blob=blob in files)
            elif name.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX in files:
                continue
            elif (row := rows.get(name)) is None:
                self._note_profile(f"{folder}/{name}" if folder else name)
            elif row.live and row.inputs_size:
                self._found.unlisted[row.name] = row.id
        self._found.missing += (row.id for name, row in rows.items() if row.live and name not in files)
        return folders

    def _note_inputs(self, path: str, row: Blob | None, *, has_blob: bool) -> None:
        blob = BlobName.parse(path.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX)
        if blob is None:
            self._found.strangers.append(self._root / path)
        elif not has_blob:
            self._found.orphans.append(self._root / path)
        elif (size := (self._root / path).stat().st_size) != (row.inputs_size if row else None):
            self._found.combined[blob] = size
            if row is None:
                self._found.unknown.add(blob)

    def _note_profile(self, path: str) -> None:
        blob = BlobName.parse(path)
        if blob is None:
            self._found.strangers.append(self._root / path)
        else:
            self._found.profiles.append(blob)


def _listed(folder: str) -> tuple[list[str], set[str]] | None:
    """The names of the folders in it, and those of all else; None of one that can't be read."""
    folders, files = [], set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    files.add(entry.name)
    except OSError:
        return None
    return folders, files


def _day_folder(row: Blob) -> str:
    return str(row.name).rsplit("/", 2)[1]


def _file(row: Blob) -> str:
    return str(row.name).rpartition("/")[2]
