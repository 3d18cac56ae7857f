"""Programs in the data folder, by service and build id, for merges in the format llvm.

    binaries/<service>/<build id>-<SHA-256>.elf

The names say all that is known of them, so the catalog has no part in it. A file is written once, durably,
and deleted whole; when it was last uploaded is its time of modification.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import structlog

from pgo_collector.engine.binaries import BinaryFacts, inspect_binary, lacking
from pgo_collector.engine.renditions import NO_BINARIES, NO_BINARY, BinaryChoice, StoredBinary
from pgo_collector.errors import BinariesOff, BinaryThere, NoSuchBinary
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings
from pgo_collector.storage.files import make_folder, remove_empty, sync_file, sync_folder
from pgo_collector.store.store import Store, not_stored

# The format of which merges are made with the help of a program.
HELPED_FORMAT = "llvm"
_SUFFIX = ".elf"
_MEGABYTE = 1 << 20
# Characters of a build id in a message; one has up to 128.
_LONGEST_BUILD_ID = 200
_log = structlog.get_logger()


class BinaryFile(NamedTuple):
    """A stored program: its size in bytes, and when it was last uploaded, in ns since 1970."""

    stored: StoredBinary
    size: int
    uploaded_nanos: int


class Binaries:
    """The programs of all services. Those that are too many or too old are deleted."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self._folder = store.folder.binaries
        self._limits = settings.binary_limits
        self._kept = settings.binaries_kept
        self._bytes = settings.binaries_megabytes * _MEGABYTE
        self._days = settings.binary_days

    async def check(self) -> None:
        """Raise BinariesOff if programs aren't taken, with the reason."""
        if not self._kept:
            raise BinariesOff("programs aren't taken here: PGOF_BINARIES_KEPT is 0")
        if reason := await asyncio.to_thread(lacking):
            raise BinariesOff(f"programs can't be read here: {reason}")

    async def add(self, service: str, body: Path) -> BinaryFacts:
        """Store the program in the file `body` durably, unless it is there already.

        Either way it is now the one that was uploaded last. Raises BinaryUnreadable, BinaryThere, OSError,
        and what `Workers.run` raises.
        """
        facts = await self.store.workers.run(inspect_binary, body, self._limits)
        # Here, since all changes wait for the thread that writes.
        await asyncio.to_thread(sync_file, body)
        await self.store.write(self._place, service, facts, body)
        return facts

    async def all(self, service: str) -> list[BinaryFile]:
        """Return the programs of a service, the one that was uploaded last first. Raises NotStored."""
        try:
            return await asyncio.to_thread(lambda: _newest_first(stored_binaries(self._folder / service)))
        except OSError as error:
            raise not_stored("list of programs", error) from error

    async def choice(self, service: str, format_: str, wanted: str | None = None) -> BinaryChoice:
        """Return the programs for merges of a service in a format; none for most formats.

        `wanted` is a build id or NO_BINARY; without it, all programs are in the choice. Raises NoSuchBinary,
        BinariesOff and NotStored.
        """
        if format_ != HELPED_FORMAT or wanted == NO_BINARY:
            return NO_BINARIES
        if not self._kept:
            if wanted is not None:
                await self.check()
            return NO_BINARIES
        stored = tuple(file.stored for file in await self.all(service))
        if wanted is None:
            return BinaryChoice(tuple(sorted(stored)), self._limits) if stored else NO_BINARIES
        named = tuple(each for each in stored if each.build_id == wanted)
        if not named:
            raise _no_such_binary(wanted)
        return BinaryChoice(named, self._limits, is_named=True)

    async def delete(self, service: str, build_id: str) -> None:
        """Delete a program. Raises NoSuchBinary and OSError."""
        await self.store.write(self._delete, service, build_id)

    async def delete_old(self, now_nanos: int) -> None:
        """Delete the programs of all services that are too old. Raises OSError."""
        if isfinite(self._days):
            await self.store.write(self._delete_old, now_nanos - int(self._days * DAY_NANOS))

    def _place(self, service: str, facts: BinaryFacts, body: Path) -> None:
        """Put a program in its place, and delete those of the service that are too many."""
        folder = self._folder / service
        path = folder / f"{facts.build_id}-{facts.sha256}{_SUFFIX}"
        for file in stored_binaries(folder):
            if file.stored.build_id == facts.build_id and file.stored.path != path:
                raise BinaryThere(
                    f"another program with the build id {facts.build_id} is stored; DELETE"
                    f" /v1/binaries/{facts.build_id} first, if this one is to be used"
                )
        if path.exists():
            os.utime(path)
        else:
            make_folder(folder)
            os.utime(body)
            body.replace(path)
        sync_folder(folder)
        self._prune(folder)

    def _prune(self, folder: Path) -> None:
        size = 0
        for place, file in enumerate(_newest_first(stored_binaries(folder))):
            size += file.size
            if place >= self._kept or (place and size > self._bytes):
                self._remove([file])

    def _delete(self, service: str, build_id: str) -> None:
        found = [file for file in stored_binaries(self._folder / service) if file.stored.build_id == build_id]
        if not found:
            raise _no_such_binary(build_id)
        self._remove(found)

    def _delete_old(self, before_nanos: int) -> None:
        for folder in [*self._folder.iterdir()]:
            self._remove(file for file in stored_binaries(folder) if file.uploaded_nanos < before_nanos)

    def _remove(self, files: Iterable[BinaryFile]) -> None:
        for file in [*files]:
            path = file.stored.path
            path.unlink()
            sync_folder(path.parent)
            remove_empty(path.parent, self._folder)
            _log.info("program deleted", service=path.parent.name, build_id=file.stored.build_id)


def stored_binaries(folder: Path) -> Iterator[BinaryFile]:
    """Yield the programs in a service's folder; none if it isn't there. Raises OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in [*folder.iterdir()]:
            build_id, _, sha256 = path.name.removesuffix(_SUFFIX).partition("-")
            if path.suffix == _SUFFIX and sha256:
                with suppress(FileNotFoundError):  # it was just deleted
                    status = path.stat()
                    stored = StoredBinary(build_id, sha256, path)
                    yield BinaryFile(stored, status.st_size, status.st_mtime_ns)


def _newest_first(files: Iterable[BinaryFile]) -> list[BinaryFile]:
    return sorted(files, key=lambda file: (-file.uploaded_nanos, file.stored.build_id))


def _no_such_binary(build_id: str) -> NoSuchBinary:
    return NoSuchBinary(
        f"no program with the build id {build_id[:_LONGEST_BUILD_ID]!r} is stored: see GET /v1/binaries"
    )
