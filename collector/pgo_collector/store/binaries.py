"""Programs by service and build id, for names and for merges in the format llvm: an area beside the blobs.

    <service>/<build id>-<SHA-256>.elf       a program that helps, with its code and debug lines
    <service>/<build id>-<SHA-256>.debug     one that only names functions, such as a separate debug file
    <service>/<build id>-<SHA-256>.symbols   a program or its symbols, without debug lines
    _shared/...                              the same, of every service

It is the folder binaries/ of the data folder, or in the bucket with the blobs. The names say all that is
known of programs, so the catalog has no part in it. An object is written once, durably, and deleted whole;
its time says when it was last uploaded. Workers read programs as files, and keep copies of those in a bucket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf, isfinite
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.files import log_not_deleted
from pgo_collector.blobs.storage import BINARIES, Storage, StoredObject
from pgo_collector.engine.binaries import BinaryFacts, inspect_binary, lacking, lacking_for_llvm
from pgo_collector.engine.renditions import NO_BINARIES, NO_BINARY, BinaryChoice, BinaryKind, StoredBinary
from pgo_collector.engine.symbols import NO_SYMBOLS, Symbols
from pgo_collector.errors import BinariesOff, BinaryThere, BinaryUnwanted, NoSuchBinary
from pgo_collector.model.series import EVERY_SERVICE
from pgo_collector.model.services import services_of
from pgo_collector.model.times import DAY_NANOS
from pgo_collector.settings import Settings
from pgo_collector.store.store import Store, not_stored
from pgo_collector.workers.pool import Workers

# The format of which merges are made with the help of a program.
HELPED_FORMAT = "llvm"
# In place of a service, whose name can't be this: programs that name the functions of every service. Agents
# of other systems upload them, whose calls name no service, with keys that are for all services.
SHARED = "_shared"
_SUFFIXES: dict[BinaryKind, str] = {"program": ".elf", "debug": ".debug", "symbols": ".symbols"}
_KINDS = {suffix: kind for kind, suffix in _SUFFIXES.items()}
# For so long a list of a bucket's programs counts, which other collectors add to. Each view asks for one.
_TRUSTED_SECONDS = 5.0
_MOST_LISTED = 1000  # services
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
    """The programs of all services. Surplus and old ones are deleted."""

    def __init__(self, store: Store, workers: Workers, settings: Settings) -> None:
        self.store = store
        self.workers = workers
        self._storage = store.blobs.storage.area(BINARIES)
        self._copies = Copies(store.folder.copies, settings.copies_bytes)
        self._limits = settings.binary_limits
        self._kept = settings.binaries_kept
        self._bytes = settings.binaries_megabytes * _MEGABYTE
        self._days = settings.binary_days
        self._shared_bytes = settings.shared_megabytes * _MEGABYTE
        self._trusted_seconds = _TRUSTED_SECONDS if self._storage.longest_wait else inf
        # By service: when its programs were listed, by the monotonic clock, and what names its functions. A
        # list that was begun before the last change isn't put here.
        self._symbols: dict[str, tuple[float, Symbols]] = {}
        self._changes = 0
        self._listing = Lock()

    async def check(self, lacks: Callable[[], str] = lacking) -> None:
        """Raise BinariesOff if programs aren't taken, or something is lacking, with the reason."""
        if not self._kept:
            raise BinariesOff("programs aren't taken here: PGOF_BINARIES_KEPT is 0")
        if reason := await asyncio.to_thread(lacks):
            raise BinariesOff(f"programs can't be read here: {reason}")

    async def add(self, service: str, body: Path, build_id: str = "") -> BinaryFacts:
        """Store the program in the file `body` durably, unless it is there already.

        Either way it is now the one that was uploaded last. If a `build_id` is given, it must have that one.
        Raises BinaryUnreadable, BinaryThere, BinaryUnwanted for another build id, OSError, and what
        `Workers.run` raises.
        """
        facts = await self.workers.run(inspect_binary, body, self._limits, self._copies)
        if build_id not in {"", facts.build_id}:
            raise BinaryUnwanted(
                f"the program has the build id {facts.build_id}; the upload is of another one,"
                f" {build_id[:_LONGEST_BUILD_ID]}"
            )
        await self.store.write_area(self._place, service, facts, body)
        return facts

    async def find(self, service: str, build_id: str) -> StoredBinary | None:
        """Return the best program of a build of a service, not one that is shared. Raises NotStored."""
        found = [file.stored for file in await self.all(service) if file.stored.build_id == build_id]
        return min(found, key=_rank, default=None)

    def symbols(self, service: str) -> Symbols:
        """Return the programs that name the functions of a service, or of several, `*` for all.

        Blocks. Raises NotStored.
        """
        if not self._kept:
            return NO_SYMBOLS
        listed, known = self._symbols.get(service, (-inf, NO_SYMBOLS))
        if time.monotonic() - listed < self._trusted_seconds:
            return known
        now, changes, best = time.monotonic(), self._changes, dict[str, StoredBinary]()
        folders = ("",) if EVERY_SERVICE in service else (*services_of(service), SHARED)
        try:
            every = [file.stored for folder in folders for file in self._stored(folder)]
        except OSError as error:
            raise not_stored("list of programs", error) from error
        for stored in sorted(every, key=_rank):
            best.setdefault(stored.build_id, stored)
        symbols = Symbols(tuple(best.values()), self._limits)
        with self._listing:
            if len(self._symbols) >= _MOST_LISTED:
                self._symbols.clear()
            if changes == self._changes:
                self._symbols[service] = now, symbols
        return symbols

    async def all(self, service: str) -> list[BinaryFile]:
        """Return the programs of a service, the one that was uploaded last first. Raises NotStored."""
        try:
            return await asyncio.to_thread(self._newest, service)
        except OSError as error:
            raise not_stored("list of programs", error) from error

    async def choice(self, service: str, format_: str, wanted: str | None = None) -> BinaryChoice:
        """Return the programs for merges of a service in a format; none for most formats.

        `wanted` is a build id or NO_BINARY; without it, all programs are in the choice. Raises NoSuchBinary,
        BinariesOff and NotStored.
        """
        if format_ != HELPED_FORMAT or wanted == NO_BINARY:
            return NO_BINARIES
        if wanted is not None:
            await self.check(lacking_for_llvm)
        elif not self._kept:
            return NO_BINARIES
        every = [file.stored for each in services_of(service) for file in await self.all(each)]
        stored = [each for each in every if each.kind == "program"]
        if wanted is None:
            return BinaryChoice(tuple(sorted(stored)), self._limits) if stored else NO_BINARIES
        named = tuple(each for each in stored if each.build_id == wanted)
        if not named:
            raise NoSuchBinary.of(wanted)
        return BinaryChoice(named, self._limits, is_named=True)

    async def delete(self, service: str, build_id: str) -> None:
        """Delete a program. Raises NoSuchBinary and OSError."""
        await self.store.write_area(self._delete, service, build_id)

    async def delete_old(self, now_nanos: int) -> None:
        """Delete the programs of all services that are too old. Raises OSError."""
        if isfinite(self._days):
            await self.store.write_area(self._delete_old, now_nanos - int(self._days * DAY_NANOS))

    def too_many(self, now_nanos: int, share: float) -> str:
        """Return how many programs are too old, in words, if that is more than a share of all; else "".

        Blocks. Raises OSError.
        """
        if not isfinite(self._days):
            return ""
        uploaded = [file.uploaded_nanos for file in self._stored()]
        old = sum(nanos < now_nanos - int(self._days * DAY_NANOS) for nanos in uploaded)
        return f"{old} of {len(uploaded)} programs" if old > share * len(uploaded) else ""

    def _newest(self, service: str) -> list[BinaryFile]:
        return _newest_first(self._stored(service))

    def _place(self, service: str, facts: BinaryFacts, body: Path) -> None:
        """Put a program in its place, and delete those of the service that are too many."""
        name = f"{service}/{facts.build_id}-{facts.sha256}{_SUFFIXES[facts.kind]}"
        self._refuse_another(service, facts)
        with self._changing():
            self._storage.upload(name, body)
        try:
            self._refuse_another(service, facts)
        except BinaryThere:  # by another collector, at the same time: at least one of the two goes
            self._delete_all([name])
            raise
        self._prune(service)

    def _refuse_another(self, service: str, facts: BinaryFacts) -> None:
        for file in self._stored(service):
            build_id, sha256, kind = file.stored[:3]
            if sha256 != facts.sha256 and (build_id, kind) == (facts.build_id, facts.kind):
                raise BinaryThere(
                    f"another program with the build id {facts.build_id} is stored; DELETE"
                    f" /v1/binaries/{facts.build_id} first, if this one is to be used"
                )

    def _prune(self, service: str) -> None:
        size = 0
        kept, most = (inf, self._shared_bytes) if service == SHARED else (self._kept, self._bytes)
        for place, file in enumerate(_newest_first(self._stored(service))):
            size += file.size
            if place >= kept or (place and size > most):
                try:
                    self._remove([file])
                except OSError as error:  # the next upload tries again
                    log_not_deleted(self._storage.where(file.stored.object.name), error)

    def _delete(self, service: str, build_id: str) -> None:
        found = [file for file in self._stored(service) if file.stored.build_id == build_id]
        if not found:
            raise NoSuchBinary.of(build_id)
        self._remove(found)

    def _delete_old(self, before_nanos: int) -> None:
        self._remove(file for file in self._stored() if file.uploaded_nanos < before_nanos)

    def _remove(self, files: Iterable[BinaryFile]) -> None:
        for file in [*files]:
            name = file.stored.object.name
            self._delete_all([name])
            _log.info("program deleted", service=name.partition("/")[0], build_id=file.stored.build_id)

    def _delete_all(self, names: Sequence[str]) -> None:
        with self._changing():
            for error in self._storage.delete(names, durably=True).values():
                raise error
            self._storage.remove_folders({name.partition("/")[0] for name in names})

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Forget which programs were listed, once some are stored or deleted, or it isn't known."""
        try:
            yield
        finally:
            with self._listing:
                self._changes += 1
                self._symbols.clear()

    def _stored(self, service: str = "") -> Iterator[BinaryFile]:
        """Yield the programs of a service, or of all services. Raises OSError."""
        for of in self._storage.objects(service):
            name, dot, suffix = of.name.rpartition("/")[2].rpartition(".")
            build_id, _, sha256 = name.partition("-")
            if of.name.count("/") == 1 and sha256 and (kind := _KINDS.get(dot + suffix)):
                stored = StoredBinary(
                    build_id, sha256, kind, StoredObject(self._storage, of.name), self._copies
                )
                yield BinaryFile(stored, of.size, of.written_nanos)


def stored_sizes(blobs: Storage) -> list[int]:
    """Return the size of each stored program, in bytes. Raises OSError."""
    return [of.size for of in blobs.area(BINARIES).objects() if of.name.endswith((*_KINDS,))]


def _rank(stored: StoredBinary) -> int:
    return [*_SUFFIXES].index(stored.kind)


def _newest_first(files: Iterable[BinaryFile]) -> list[BinaryFile]:
    return sorted(files, key=lambda file: (-file.uploaded_nanos, file.stored.build_id))
