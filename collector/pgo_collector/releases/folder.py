"""The folder releases/: immutable profiles by number, and what is known of each beside it.

    <service>/<type>/<number>.pb.gz               the profile, by the rules of its day
    <service>/<type>/<number>.<sha256>-<format>   the same in another format, once that was asked for
    <service>/<type>/<number>.json                a `Release`, which there is as long as this is there
    <service>/<type>/choice.json                  a `Choice`, where that isn't simply the newest

The catalog has no rows of it, so none of it is lost with that. Every change takes effect with one file, which
is written elsewhere, synced, and put in its place at once.
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
from pgo_collector.store.folder import (
    DataFolder,
    make_folder,
    remove_part,
    sync_file,
    sync_folder,
    warn_foreign,
)

_CHOICE = "choice.json"
_NAME = re.compile(
    rf"(?P<number>{NUMBER_PATTERN})\.(?:json|pb\.gz|(?P<etag>[0-9a-f]{{64}}-(?P<format>[a-z0-9.]+)))"
)
_DEPTH = 3
_log = structlog.get_logger()

Known = TypeVar("Known", Release, Choice)


class Releases:
    """The releases of a service. Methods block, and raise OSError; one thread at a time makes changes."""

    def __init__(self, folder: DataFolder, series: Series) -> None:
        self._root = folder.releases / series.service / series.type
        self._new_part = folder.new_part

    def numbers(self) -> list[int]:
        """Of all there are, the newest first."""
        matches = (_NAME.fullmatch(path.name) for path in self._root.glob("*.json"))
        return sorted((int(match["number"]) for match in matches if match), reverse=True)

    def release(self, number: int) -> Release:
        """The release of that number. Raises NoSuchRelease or ReleaseDamaged."""
        try:
            return _read(self._known(number), Release)
        except FileNotFoundError:
            raise NoSuchRelease(f"there is no release {number}") from None

    def all(self) -> list[Release]:
        """All but those of which is not known what they are, the newest first."""
        releases = []
        for number in self.numbers():
            with suppress(NoSuchRelease, ReleaseDamaged):
                releases.append(self.release(number))
        return releases

    def choice(self) -> Choice | None:
        """Which one is current; None while there is none. Raises ReleaseDamaged."""
        with suppress(FileNotFoundError):
            return _read(self._root / _CHOICE, Choice)
        numbers = self.numbers()
        return Choice(number=numbers[0], pinned=False) if numbers else None

    def choose(self, choice: Choice) -> None:
        """Makes a release the current one."""
        if choice == Choice(number=self.numbers()[0], pinned=False):
            with suppress(FileNotFoundError):
                (self._root / _CHOICE).unlink()
                sync_folder(self._root)
        else:
            self._write(self._root / _CHOICE, choice)

    def add(self, part: Path, release: Release) -> None:
        """Makes the file `part` a release; where that fails nothing is left of it."""
        sync_file(part)
        make_folder(self._root)
        for folder in (self._root.parent, self._root.parent.parent):
            sync_folder(folder)  # who made it may have died before it was durable
        try:
            part.replace(self.profile(release.number))
            sync_folder(self._root)
            self._write(self._known(release.number), release)
        except OSError:
            with suppress(OSError):
                self._discard(release.number)
            raise

    def add_form(self, release: Release, etag: str, part: Path) -> None:
        """Keeps the file `part` as the form of a release that has that etag."""
        part.replace(self._root / f"{release.number}.{etag}")
        sync_folder(self._root)

    def profile(self, number: int) -> Path:
        """Where the profile of a release is."""
        return self._root / f"{number}.pb.gz"

    def open(self, release: Release) -> BinaryIO:
        """Its profile, byte for byte what was released. Raises NoSuchRelease or ReleaseDamaged."""
        return self._open(release, self.profile(release.number), release.sha256)

    def form(self, release: Release, format_: str) -> str | None:
        """The etag of what is kept of it in another format; None if that is nothing, or damaged."""
        for path in sorted(self._root.glob(f"{release.number}.*-{format_}")):
            match = _NAME.fullmatch(path.name)
            if match is not None and match["format"] == format_:
                with suppress(ReleaseDamaged):
                    self.open_form(release, match["etag"]).close()
                    return match["etag"]
        return None

    def open_form(self, release: Release, etag: str) -> BinaryIO:
        """Its form with that etag. Raises as `open` does."""
        return self._open(release, self._root / f"{release.number}.{etag}", etag.partition("-")[0])

    def prune(self, kept: int) -> None:
        """Deletes all but the newest and the current one; what fails is logged, and tried the next time."""
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
        """Logs which releases are damaged."""
        for number in self.numbers():
            try:
                self.open(self.release(number)).close()
            except (ReleaseDamaged, OSError) as error:
                _log.error("release damaged", release=number, reason=str(error))

    def _open(self, release: Release, path: Path, sha256: str) -> BinaryIO:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            self.release(release.number)  # where it is deleted meanwhile, that is what is to be said
            raise ReleaseDamaged(f"release {release.number}: {path.name} is missing") from None
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            file.close()
            raise ReleaseDamaged(f"release {release.number}: {path.name} isn't what was released")
        file.seek(0)
        return file

    def _discard(self, number: int) -> None:
        """Removes all of a release, first what makes it one."""
        self._known(number).unlink(missing_ok=True)
        sync_folder(self._root)
        for path in self._root.glob(f"{number}.*"):
            path.unlink()

    def _known(self, number: int) -> Path:
        return self._root / f"{number}.json"

    def _write(self, path: Path, known: Release | Choice) -> None:
        part = self._new_part()
        try:
            part.write_text(known.model_dump_json(indent=1))
            sync_file(part)
            part.replace(path)
        finally:
            remove_part(part)
        sync_folder(self._root)


def sweep_releases(folder: DataFolder) -> None:
    """At a start: removes what never came to be a release or was one, and looks at those there are."""
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


def _read(path: Path, kind: type[Known]) -> Known:
    """Raises ReleaseDamaged, and FileNotFoundError."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError:
        raise ReleaseDamaged(f"{path.name} in {path.parent} isn't what was written there") from None
