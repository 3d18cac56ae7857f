"""The differences between blobs/ and the catalog, found folder by folder at a start.

Only differences are kept, so the memory of a start doesn't grow with what is stored.
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
    """The differences between blobs/ and the catalog."""

    # Blobs with an .inputs that aren't in the catalog, or have another size of .inputs there: the size on
    # disk.
    combined: dict[BlobName, int] = field(default_factory=dict)
    # The blobs of `combined` that aren't in the catalog.
    unknown: set[BlobName] = field(default_factory=set)
    # Blobs without an .inputs that aren't in the catalog.
    profiles: list[BlobName] = field(default_factory=list)
    # The ids of live blobs without a file.
    missing: list[int] = field(default_factory=list)
    # The ids of live combined blobs that have a file and no .inputs.
    without_inputs: dict[BlobName, int] = field(default_factory=dict)
    # .inputs files without a blob.
    orphans: list[Path] = field(default_factory=list)
    # Empty folders.
    empty: list[Path] = field(default_factory=list)
    # Files that the collector didn't make.
    foreign: list[Path] = field(default_factory=list)


def find_differences(
    root: Path, rows: Iterable[Blob], on_folder: Callable[[], None] = lambda: None
) -> Differences:
    """Compare everything below `root`, the folder blobs/, with the catalog's rows. Raises OSError.

    The rows must be sorted by series, then by time. `on_folder` is called for every folder, to show progress.
    """
    return _Walk(root, on_folder).compare(rows)


class _Walk:
    """One walk over blobs/, and the differences that it has found so far.

    Paths are texts below the root: with a hundred thousand folders, making Path objects takes most of the
    time.
    """

    def __init__(self, root: Path, on_folder: Callable[[], None]) -> None:
        self._root = root
        self._on_folder = on_folder
        self._found = Differences()
        # For each folder of a series that has rows: the folders in it that aren't days.
        self._known: dict[str, list[str]] = {}

    def compare(self, rows: Iterable[Blob]) -> Differences:
        for series, of_series in groupby(rows, key=lambda row: row.name.series):
            folder = series.folders
            inside = self._compare_files(folder, _NOTHING)
            days = set(filter(_DAY.fullmatch, inside))
            self._known[folder] = [name for name in inside if name not in days]
            for day, of_day in groupby(of_series, key=_day_folder):
                days.discard(day)
                self._compare_day(f"{folder}/{day}", {_file(row): row for row in of_day})
            for day in sorted(days):
                self._compare_day(f"{folder}/{day}", _NOTHING)
        self._compare_rest("")
        return self._found

    def _compare_rest(self, folder: str) -> None:
        """Compare a folder without rows and everything below it but the days of series that have rows."""
        known = self._known.pop(folder, None)
        for name in self._compare_files(folder, _NOTHING) if known is None else known:
            self._compare_rest(f"{folder}/{name}" if folder else name)

    def _compare_day(self, folder: str, rows: Mapping[str, Blob]) -> None:
        """Compare the folder of a day, and folders below it, which shouldn't be there."""
        for name in self._compare_files(folder, rows):
            self._compare_rest(f"{folder}/{name}")

    def _compare_files(self, folder: str, rows: Mapping[str, Blob]) -> list[str]:
        """Compare the files of a folder with the catalog's rows, given by file name; return its folders."""
        self._on_folder()
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
                self._found.without_inputs[row.name] = row.id
        self._found.missing += (row.id for name, row in rows.items() if row.live and name not in files)
        return folders

    def _note_inputs(self, path: str, row: Blob | None, *, has_blob: bool) -> None:
        blob = BlobName.parse(path.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX)
        if blob is None:
            self._found.foreign.append(self._root / path)
        elif not has_blob:
            self._found.orphans.append(self._root / path)
        elif (size := (self._root / path).stat().st_size) != (row.inputs_size if row else None):
            self._found.combined[blob] = size
            if row is None:
                self._found.unknown.add(blob)

    def _note_profile(self, path: str) -> None:
        blob = BlobName.parse(path)
        if blob is None:
            self._found.foreign.append(self._root / path)
        else:
            self._found.profiles.append(blob)


def _listed(folder: str) -> tuple[list[str], set[str]] | None:
    """Return the names of a folder's folders, and of its other entries; None if it can't be read."""
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
