"""The differences between the stored blobs and the catalog, found folder by folder at a start.

Only differences are kept, so the memory of a start doesn't grow with what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from pgo_collector.blobs.storage import MISSING, Listed, Lister
from pgo_collector.catalog.rows import Blob
from pgo_collector.model.series import BLOB_SUFFIX, INPUTS_SUFFIX, BlobName

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_UNREADABLE = Listed([], (), lambda _: MISSING)
_NOTHING: Mapping[str, Blob] = MappingProxyType({})


@dataclass(slots=True)
class Differences:
    """The differences between the stored blobs and the catalog. Names are those of the storage."""

    # Blobs with an .inputs that aren't in the catalog, or have another size of .inputs there: the size in
    # the storage.
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
    orphans: list[str] = field(default_factory=list)
    # Empty folders.
    empty: list[str] = field(default_factory=list)
    # Files that the collector didn't make.
    foreign: list[str] = field(default_factory=list)


def find_differences(
    listed: Lister, rows: Iterable[Blob], on_folder: Callable[[], None] = lambda: None
) -> Differences:
    """Compare everything that a storage lists with the catalog's rows. Raises OSError.

    The rows must be sorted by series, then by time. `on_folder` is called for every folder, to show progress.
    """
    return _Walk(listed, on_folder).compare(rows)


class _Walk:
    """One walk over the folders of a storage, and the differences that it has found so far."""

    def __init__(self, listed: Lister, on_folder: Callable[[], None]) -> None:
        self._listed = listed
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
        listed = self._listed(folder)
        folders, files, size = listed or _UNREADABLE
        if listed is not None and not folders and not files and folder:
            self._found.empty.append(folder)
        for name in sorted(files):
            if name.endswith(INPUTS_SUFFIX):
                blob = name.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX
                self._note_inputs(f"{folder}/{name}", size(name), rows.get(blob), has_blob=blob in files)
            elif name.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX in files:
                continue
            elif (row := rows.get(name)) is None:
                self._note_profile(f"{folder}/{name}" if folder else name)
            elif row.live and row.inputs_size:
                self._found.without_inputs[row.name] = row.id
        self._found.missing += (row.id for name, row in rows.items() if row.live and name not in files)
        return folders

    def _note_inputs(self, path: str, size: int, row: Blob | None, *, has_blob: bool) -> None:
        blob = BlobName.parse(path.removesuffix(INPUTS_SUFFIX) + BLOB_SUFFIX)
        if blob is None:
            self._found.foreign.append(path)
        elif not has_blob:
            self._found.orphans.append(path)
        elif size != (row.inputs_size if row else None):
            self._found.combined[blob] = size
            if row is None:
                self._found.unknown.add(blob)

    def _note_profile(self, path: str) -> None:
        blob = BlobName.parse(path)
        if blob is None:
            self._found.foreign.append(path)
        else:
            self._found.profiles.append(blob)


def _day_folder(row: Blob) -> str:
    return str(row.name).rsplit("/", 2)[1]


def _file(row: Blob) -> str:
    return str(row.name).rpartition("/")[2]
