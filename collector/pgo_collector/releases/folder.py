"""The folder releases/: immutable profiles by number, each with a record beside it.

    <service>/<type>/<number>.pb.gz               the profile, with the rules of its time applied
    <service>/<type>/<number>.<sha256>-<format>   the same in another format, once it has been requested
    <service>/<type>/<number>.json                the record, a `Release`; without it there is no release
    <service>/<type>/choice.json                  the current release, a `Choice`, if it isn't the newest

The catalog has nothing of this, so a lost catalog loses no release. Every change takes effect with one file,
which is written elsewhere, synced, and then renamed into place.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import structlog
from pydantic import ValidationError

from pgo_collector.errors import NoSuchRelease, ReleaseDamaged
from pgo_collector.model.series import Series
from pgo_collector.releases.release import NUMBER_PATTERN, Choice, Release
from pgo_collector.storage.files import make_folder, sync_file, sync_folder
from pgo_collector.store.folder import DataFolder, remove_part, warn_foreign

_CHOICE = "choice.json"
_NAME = re.compile(
    rf"(?P<number>{NUMBER_PATTERN})\.(?:json|pb\.gz|(?P<etag>[0-9a-f]{{64}}-(?P<format>[a-z0-9.]+)))"
)
_DEPTH = 3
_log = structlog.get_logger()

Record = TypeVar("Record", Release, Choice)


class Releases:
    """The releases of a service. Methods block and raise OSError; one thread at a time may change them."""

    def __init__(self, folder: DataFolder, series: Series) -> None:
        self._root = folder.releases / series.service / series.type
        self._new_part = folder.new_part

    def numbers(self) -> list[int]:
        """Return the numbers of all releases, the newest first."""
        matches = (_NAME.fullmatch(path.name) for path in self._root.glob("*.json"))
        return sorted((int(match["number"]) for match in matches if match), reverse=True)

    def release(self, number: int) -> Release:
        """Return the record of a release. Raises NoSuchRelease or ReleaseDamaged."""
        try:
            return _read(self._record_path(number), Release)
        except FileNotFoundError:
            raise NoSuchRelease(f"there is no release {number}") from None

    def all(self) -> list[Release]:
        """Return the records of all releases but damaged ones, the newest first."""
        releases = []
        for number in self.numbers():
            with suppress(NoSuchRelease, ReleaseDamaged):
                releases.append(self.release(number))
        return releases

    def choice(self) -> Choice | None:
        """Return which release is current; None if there are no releases. Raises ReleaseDamaged."""
        with suppress(FileNotFoundError):
            return _read(self._root / _CHOICE, Choice)
        numbers = self.numbers()
        return Choice(number=numbers[0], pinned=False) if numbers else None

    def choose(self, choice: Choice) -> None:
        """Make a release the current one."""
        if choice == Choice(number=self.numbers()[0], pinned=False):
            with suppress(FileNotFoundError):
                (self._root / _CHOICE).unlink()
                sync_folder(self._root)
        else:
            self._write(self._root / _CHOICE, choice)

    def add(self, part: Path, release: Release) -> None:
        """Make the file `part` a release. If this fails, nothing is left of it."""
        sync_file(part)
        make_folder(self._root)
        for folder in (self._root.parent, self._root.parent.parent):
            sync_folder(folder)  # the process that made it may have died before syncing it
        try:
            part.replace(self.profile(release.number))
            sync_folder(self._root)
            self._write(self._record_path(release.number), release)
        except OSError:
            with suppress(OSError):
                self._discard(release.number)
            raise

    def add_rendition(self, release: Release, etag: str, part: Path) -> None:
        """Keep the file `part` as the rendition of a release with this etag."""
        part.replace(self._root / f"{release.number}.{etag}")
        sync_folder(self._root)

    def profile(self, number: int) -> Path:
        """Return the path of a release's profile."""
        return self._root / f"{number}.pb.gz"

    def open(self, release: Release) -> BinaryIO:
        """Open a release's profile and check its bytes. Raises NoSuchRelease or ReleaseDamaged."""
        return self._open(release, self.profile(release.number), release.sha256)

    def rendition(self, release: Release, format_: str) -> str | None:
        """Return the etag of the stored rendition in another format; None if it is missing or damaged."""
        for path in sorted(self._root.glob(f"{release.number}.*-{format_}")):
            match = _NAME.fullmatch(path.name)
            if match is not None and match["format"] == format_:
                with suppress(ReleaseDamaged):
                    self.open_rendition(release, match["etag"]).close()
                    return match["etag"]
        return None

    def open_rendition(self, release: Release, etag: str) -> BinaryIO:
        """Open the rendition of a release with this etag. Raises as `open` does."""
        return self._open(release, self._root / f"{release.number}.{etag}", etag.partition("-")[0])

    def prune(self, kept: int) -> None:
        """Delete all but the `kept` newest releases and the current one.

        Failures are logged; the next call tries again.
        """
        choice = self.choice()
        for number in self.numbers()[kept:]:
            if choice is None or number == choice.number:
                continue
            try:
                self._discard(number)
            except OSError as error:
                _log.warning(
                    "release not deleted, left for the next time", release=number, reason=error.strerror
                )
            else:
                _log.info("release deleted", release=number)

    def check(self) -> None:
        """Log the releases that are damaged."""
        for number in self.numbers():
            try:
                self.open(self.release(number)).close()
            except (ReleaseDamaged, OSError) as error:
                _log.error("release damaged", release=number, reason=str(error))

    def _open(self, release: Release, path: Path, sha256: str) -> BinaryIO:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            self.release(release.number)  # raises NoSuchRelease if it has been deleted meanwhile
            raise ReleaseDamaged(f"release {release.number}: {path.name} is missing") from None
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            file.close()
            raise ReleaseDamaged(f"release {release.number}: the content of {path.name} has changed")
        file.seek(0)
        return file

    def _discard(self, number: int) -> None:
        """Remove all files of a release, its record first."""
        self._record_path(number).unlink(missing_ok=True)
        sync_folder(self._root)
        for path in self._root.glob(f"{number}.*"):
            path.unlink()

    def _record_path(self, number: int) -> Path:
        return self._root / f"{number}.json"

    def _write(self, path: Path, record: Release | Choice) -> None:
        part = self._new_part()
        try:
            part.write_text(record.model_dump_json(indent=1))
            sync_file(part)
            part.replace(path)
        finally:
            remove_part(part)
        sync_folder(self._root)


def sweep_releases(folder: DataFolder) -> None:
    """Remove files without a record, and check all releases; called at the start of the server."""
    for path in sorted(folder.releases.rglob("*")):
        match = _NAME.fullmatch(path.name)
        if path.is_dir():
            continue
        if len(path.relative_to(folder.releases).parts) != _DEPTH or not (match or path.name == _CHOICE):
            warn_foreign(path)
        elif match and not path.with_name(f"{match['number']}.json").exists():
            path.unlink()
    for path in sorted(folder.releases.glob("*/*/")):
        Releases(folder, Series(path.parent.name, path.name)).check()


def _read(path: Path, kind: type[Record]) -> Record:
    """Return a record. Raises ReleaseDamaged and FileNotFoundError."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError:
        raise ReleaseDamaged(f"{path} is damaged: it isn't a record of a release") from None
