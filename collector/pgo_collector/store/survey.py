"""A survey of blobs/ at a start: where it differs from the catalog, found folder by folder.

What both have, which is almost all, is not kept; so a start takes no memory for what is stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from pgo_collector.engine.stored import BLOB_SUFFIX
from pgo_collector.store.blob_rows import Blob
from pgo_collector.store.blobs import INPUTS_SUFFIX, BlobName

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
    # .inputs without a blob.
    orphans: list[Path] = field(default_factory=list)
    # The rest.
    strangers: list[Path] = field(default_factory=list)


def survey(root: Path, rows: Iterable[Blob]) -> Differences:
    """Looks at all that is below blobs/, with the rows of the catalog by series and time. Raises OSError."""
    return _Survey(root).of(rows)


class _Survey:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._found = Differences()
        self._known: set[Path] = set()

    def of(self, rows: Iterable[Blob]) -> Differences:
        for series, of_series in groupby(rows, key=lambda row: row.name.series):
            folder = self._root / series.folders
            self._known.add(folder)
            days = set(filter(_DAY.fullmatch, _listed(folder)[0]))
            for day, of_day in groupby(of_series, key=_day_folder):
                days.discard(day)
                self._compare(folder / day, {_file(row): row for row in of_day})
            for day in sorted(days):
                self._compare(folder / day, _NOTHING)
        self._look(self._root)
        return self._found

    def _look(self, folder: Path) -> None:
        """A folder without a row; but the days of a series that has rows have been looked at."""
        for name in self._compare_files(folder, _NOTHING):
            if not (folder in self._known and _DAY.fullmatch(name)):
                self._look(folder / name)

    def _compare(self, folder: Path, rows: Mapping[str, Blob]) -> None:
        """The folder of a day, and what is below it, where nothing belongs."""
        for name in self._compare_files(folder, rows):
            self._look(folder / name)

    def _compare_files(self, folder: Path, rows: Mapping[str, Blob]) -> list[str]:
        """The files of a folder, of which the catalog has these rows by their names; returns its folders."""
        folders, files = _listed(folder)
        for name in sorted(files):
            if name.endswith(INPUTS_SUFFIX):
                blob = name.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX
                self._note_inputs(folder / name, rows.get(blob), has_blob=blob in files)
            elif name not in rows and name.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX not in files:
                self._note_profile(folder / name)
        self._found.missing += (row.id for name, row in rows.items() if row.live and name not in files)
        return folders

    def _note_inputs(self, path: Path, row: Blob | None, *, has_blob: bool) -> None:
        blob = self._name(path.with_name(path.name.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX))
        if blob is None:
            self._found.strangers.append(path)
        elif not has_blob:
            self._found.orphans.append(path)
        elif (size := path.stat().st_size) != (row.inputs_size if row else None):
            self._found.combined[blob] = size
            if row is None:
                self._found.unknown.add(blob)

    def _note_profile(self, path: Path) -> None:
        blob = self._name(path)
        if blob is None:
            self._found.strangers.append(path)
        else:
            self._found.profiles.append(blob)

    def _name(self, path: Path) -> BlobName | None:
        return BlobName.parse(path.relative_to(self._root).as_posix())


def _listed(folder: Path) -> tuple[list[str], set[str]]:
    """The names of the folders in it, and those of all else; of one that can't be read, none."""
    folders, files = [], set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                files.add(entry.name)
    return folders, files


def _day_folder(row: Blob) -> str:
    return str(row.name).rsplit("/", 2)[1]


def _file(row: Blob) -> str:
    return str(row.name).rpartition("/")[2]
