"""The area releases: immutable profiles by number, each with a record beside it.

    <service>/<type>/<number>.pb.gz               the profile, with the rules of its time applied
    <service>/<type>/<number>.<sha256>-<format>   the same in another format, once it has been requested
    <service>/<type>/<number>.json                the record, a `Release`; without it there is no release
    <service>/<type>/choice.json                  the current release, a `Choice`; without it, the newest

It is the folder releases/ of the data folder, or in the bucket with the blobs. The catalog has nothing of
this, so a lost catalog loses no release.

Several collectors may change the releases in a bucket at once. Each change takes effect with one object. If
several make the release with the same number, one of them adds the profile, and then the record. A collector
that deletes a release checks, when the record is gone, whether another has pinned it meanwhile; a collector
that pins one checks afterwards whether its record is gone.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import structlog

from pgo_collector.blobs.storage import MISSING, RELEASES, Storage, StoredObject
from pgo_collector.errors import NoSuchRelease, ReleaseDamaged
from pgo_collector.model.series import Series
from pgo_collector.model.services import is_several
from pgo_collector.releases import records
from pgo_collector.releases.release import NUMBER_PATTERN
from pgo_collector.store.folder import log_unknown_file

_CHOICE = "choice.json"
_NAME = re.compile(
    rf"(?P<number>{NUMBER_PATTERN})\.(?:json|pb\.gz|(?P<etag>[0-9a-f]{{64}}-(?P<format>[a-z0-9.]+)))"
)
_RECORD = ".json"
_DEPTH = 3
_log = structlog.get_logger()

Record = TypeVar("Record", "records.Release", "records.Choice")


class Releases:
    """The releases of a service. Methods block and raise OSError; one thread of this process at a time may
    change them.
    """

    def __init__(self, blobs: Storage, series: Series) -> None:
        """Look at the area beside the blobs."""
        self._storage = blobs.area(RELEASES)
        self._folder = f"{series.service}/{series.type}"

    def numbers(self) -> list[int]:
        """Return the numbers of all releases, the newest first."""
        return _numbers(self._names())

    def next_number(self, *, is_patient: bool = True) -> int:
        """Return the number of the next release.

        Another collector may be making it. If not `is_patient`, return one that not even a profile without
        a record has.
        """
        names = self._names()
        if is_patient:
            return max(_numbers(names), default=0) + 1
        return max((int(match["number"]) for match in map(_NAME.fullmatch, names) if match), default=0) + 1

    def release(self, number: int) -> records.Release:
        """Return the record of a release. Raises NoSuchRelease or ReleaseDamaged."""
        try:
            return self._read(_record_name(number), records.Release)
        except FileNotFoundError:
            raise NoSuchRelease(f"there is no release {number}") from None

    def all(self) -> list[records.Release]:
        """Return the records of all releases but damaged ones, the newest first."""
        releases = []
        for number in self.numbers():
            with suppress(NoSuchRelease, ReleaseDamaged):
                releases.append(self.release(number))
        return releases

    def newest(self) -> records.Release | None:
        """Return the record of the newest release that isn't damaged; None if there is none."""
        for number in self.numbers():
            with suppress(NoSuchRelease, ReleaseDamaged):
                return self.release(number)
        return None

    def choice(self) -> records.Choice | None:
        """Return which release is current; None if there are no releases. Raises ReleaseDamaged."""
        names = self._names()
        if _CHOICE in names:
            return self._read(_CHOICE, records.Choice)
        numbers = _numbers(names)
        return records.Choice(number=numbers[0], pinned=False) if numbers else None

    def make_current(self, number: int | None = None) -> None:
        """Make a release, or the newest one, current, unless one is pinned. Raises ReleaseDamaged."""

        def changed(choice: records.Choice | None) -> records.Choice | None:
            newest = max(self.numbers())  # asked for again if another collector has changed the choice
            if choice is None and number in {None, newest}:
                return None
            return (
                choice if choice and choice.pinned else records.Choice(number=number or newest, pinned=False)
            )

        self._change_choice(changed)

    def pin(self, number: int) -> None:
        """Make a release the current one until it is unpinned.

        Raises NoSuchRelease if another collector has deleted it meanwhile.
        """
        pinned = records.Choice(number=number, pinned=True)
        self._storage.update(self._name(_CHOICE), lambda _: _written(pinned))
        if self._storage.size(self._name(_record_name(number))) == MISSING:
            newest = records.Choice(number=max(self.numbers(), default=number), pinned=False)
            self._change_choice(lambda choice: newest if choice == pinned else choice)
            raise NoSuchRelease(f"there is no release {number}")

    def unpin(self, number: int) -> bool:
        """Unpin a release, which stays the current one until the next; return whether it was pinned."""
        pinned = records.Choice(number=number, pinned=True)
        unpinned = records.Choice(number=number, pinned=False)
        return self._change_choice(lambda choice: unpinned if choice == pinned else choice)

    def add(self, part: Path, release: records.Release) -> bool:
        """Make the file `part` a release. Return False if its number is another collector's.

        If this fails, nothing is left of it, as far as the storage can be reached.
        """
        record, content = self._name(_record_name(release.number)), _written(release)
        try:
            self._storage.add(self.profile(release.number).name, part)
        except FileExistsError:
            return False
        try:
            self._storage.add(record, content)
        except FileExistsError:  # or the answer to an earlier try was lost
            return self._storage.read(record) == content
        except OSError:
            with suppress(OSError):
                self._delete([record])
                self._delete(self._names_of(release.number))
            raise
        return True

    def add_rendition(self, release: records.Release, etag: str, part: Path) -> None:
        """Keep the file `part` as the rendition of a release with this etag."""
        self._storage.upload(self._name(f"{release.number}.{etag}"), part)

    def profile(self, number: int) -> StoredObject:
        """Return the object with a release's profile."""
        return StoredObject(self._storage, self._name(f"{number}.pb.gz"))

    def open(self, release: records.Release) -> BinaryIO:
        """Open a release's profile and check its bytes. Raises NoSuchRelease or ReleaseDamaged."""
        return self._open(release, f"{release.number}.pb.gz", release.sha256)

    def rendition(self, release: records.Release, format_: str) -> str | None:
        """Return the etag of the stored rendition in another format; None if it is missing or damaged.

        If two collectors have made it at once, it is the one that was stored first.
        """
        found = []
        for of in self._storage.objects(self._folder):
            match = _NAME.fullmatch(of.name.rpartition("/")[2])
            if match and int(match["number"]) == release.number and match["format"] == format_:
                found.append((of.written_nanos, match["etag"]))
        for _, etag in sorted(found):
            with suppress(ReleaseDamaged):
                self.open_rendition(release, etag).close()
                return etag
        return None

    def open_rendition(self, release: records.Release, etag: str) -> BinaryIO:
        """Open the rendition of a release with this etag. Raises as `open` does."""
        return self._open(release, f"{release.number}.{etag}", etag.partition("-")[0])

    def prune(self, kept: int) -> None:
        """Delete all but the `kept` newest releases and the current one.

        Failures are logged; the next call tries again.
        """
        for number in self.numbers()[kept:]:
            try:
                is_deleted = self._discard(number)
            except OSError as error:
                _log.warning(
                    "release not deleted",
                    release=number,
                    reason=error.strerror or str(error),
                )
            else:
                if is_deleted:
                    _log.info("release deleted", release=number)

    def check(self) -> None:
        """Log the releases that are damaged."""
        for number in self.numbers():
            try:
                self.open(self.release(number)).close()
            except (ReleaseDamaged, OSError) as error:
                _log.error("release damaged", release=number, reason=str(error))

    def _open(self, release: records.Release, name: str, sha256: str) -> BinaryIO:
        try:
            file = self._storage.open(self._name(name))
        except FileNotFoundError:
            self.release(release.number)  # raises NoSuchRelease if it has been deleted meanwhile
            raise ReleaseDamaged(f"release {release.number}: {name} is missing") from None
        if hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest() != sha256:
            file.close()
            raise ReleaseDamaged(f"release {release.number}: the content of {name} has changed")
        file.seek(0, os.SEEK_SET)
        return file

    def _discard(self, number: int) -> bool:
        """Delete a release, its record first, unless it is the current one; return whether it is gone."""
        if self._is_current(number):
            return False
        record = self._name(_record_name(number))
        try:
            content = self._storage.read(record)
        except FileNotFoundError:  # another collector deletes it
            return False
        self._delete([record])
        if self._is_current(number):  # another collector has pinned it, while its record was there
            self._storage.add(record, content)
            return False
        names = self._names_of(number)
        if record in names:  # another that deletes it has seen that it was pinned
            return False
        self._delete(names)
        return True

    def _is_current(self, number: int) -> bool:
        choice = self.choice()
        return choice is None or choice.number == number

    def _names_of(self, number: int) -> list[str]:
        return [self._name(name) for name in self._names() if name.startswith(f"{number}.")]

    def _delete(self, names: list[str]) -> None:
        for error in self._storage.delete(names, durably=True).values():
            raise error

    def _names(self) -> list[str]:
        """Return the names in the folder of this service."""
        begin = len(self._folder) + 1
        return [of.name[begin:] for of in self._storage.objects(self._folder)]

    def _name(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _change_choice(self, change: Callable[[records.Choice | None], records.Choice | None]) -> bool:
        """Change the choice, None if there is none; return whether it is another one now."""
        name = self._name(_CHOICE)

        def changed(content: bytes | None) -> bytes | None:
            choice = None if content is None else _parsed(content, records.Choice, self._storage.where(name))
            new = change(choice)
            return None if new is None or new == choice else _written(new)

        return self._storage.update(name, changed)

    def _read(self, name: str, kind: type[Record]) -> Record:
        """Return a record. Raises ReleaseDamaged and FileNotFoundError."""
        where = self._storage.where(self._name(name))
        return _parsed(self._storage.read(self._name(name)), kind, where)


def release_sets(blobs: Storage) -> set[str]:
    """Return the folders with releases of several services. Raises OSError."""
    folders = (of.name.partition("/")[0] for of in blobs.area(RELEASES).objects())
    return {folder for folder in folders if is_several(folder)}


def sweep_releases(blobs: Storage) -> None:
    """Delete profiles without a record, and log the releases that are damaged.

    Call it where no collector serves: one may just be adding the record.
    """
    area = blobs.area(RELEASES)
    names = sorted(of.name for of in area.objects())
    folders: dict[str, set[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        if name.count("/") == _DEPTH - 1 and (_NAME.fullmatch(file) or file == _CHOICE):
            folders.setdefault(folder, set()).add(file)
        else:
            log_unknown_file(area.where(name))
    for folder, files in folders.items():
        matches = filter(None, map(_NAME.fullmatch, files))
        left = [match.string for match in matches if _record_name(int(match["number"])) not in files]
        for error in area.delete([f"{folder}/{file}" for file in left]).values():
            raise error
        service, _, type_ = folder.partition("/")
        Releases(blobs, Series(service, type_)).check()


def _numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the releases with a record among these names, the newest first."""
    records = (_NAME.fullmatch(name) for name in names if name.endswith(_RECORD))
    return sorted((int(match["number"]) for match in records if match), reverse=True)


def _record_name(number: int) -> str:
    return f"{number}{_RECORD}"


def _written(record: records.Release | records.Choice) -> bytes:
    return record.model_dump_json(indent=1).encode()


def _parsed(content: bytes, kind: type[Record], where: str) -> Record:
    try:
        return kind.model_validate_json(content)
    except ValueError:  # pydantic's is one
        raise ReleaseDamaged(f"{where} is damaged: it isn't a record of a release") from None
