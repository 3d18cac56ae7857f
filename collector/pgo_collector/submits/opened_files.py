"""Opened files: profiles that somebody looks at on the pages, which no other visitor sees and nothing keeps.

    form → a worker finds the formats, reads and checks the files → the store of opened files → the pages

That store is beside the collector's own, in the data folder, and is deleted at each start. Each file is the
only profile of a service there, whose name nobody can guess. A file is closed after an hour, and makes room
for newer ones of its session before that.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Concatenate, NamedTuple, NoReturn, ParamSpec

import structlog
from pprof_merge import Header, LimitExceeded, Limits, ProfileError
from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.engine.pushes import PlacedProfile, PushBody, PushedProfile, Unpacked, validate_pushes
from pgo_collector.engine.validation import BODY_TIME, is_cpu, likely_types
from pgo_collector.errors import (
    CatalogFails,
    EmptyProfile,
    FileRefused,
    FilesFull,
    LeaseHeld,
    LeaseLost,
    NoSuchFile,
    NotComparable,
    PushInvalid,
    Refusal,
    WorkerUnavailable,
)
from pgo_collector.http.forms import form_parts
from pgo_collector.merges.kept import KeptMerges
from pgo_collector.model.profile_types import CPU, OTHER
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import Scope, Series, service_called
from pgo_collector.readers.any_format import FORMATS, pprof_of
from pgo_collector.store.folder import CATALOG, DataFolder, folder_storage
from pgo_collector.store.garbage import delete_live
from pgo_collector.store.locks import Locks
from pgo_collector.store.store import Store, not_stored
from pgo_collector.submits.commit import Commits, Submission
from pgo_collector.workers.blob_tasks import BlobTasks
from pgo_collector.workers.bulk import OwnWorkers

# The fields of the form: the file to look at, and the one that it is compared with.
FILE, BASE = "file", "base"
_FIELDS = (BASE, FILE)
MOST_AT_ONCE = len(_FIELDS)
_MOST_PARTS = 8
SECONDS = 3600.0
MOST_OF_SESSION = 10
_MOST_FILES = 200
_MOST_BYTES = 512 << 20  # as gzip
_KEPT_MERGES = 20
_LOOK_SECONDS = 10.0
_LONGEST_NAME = 60
# Between the name of a file and what nobody can guess, in the name of its service.
_MARK = ".opened-"
NOT_OPEN = (
    "this file isn't open here: a file is closed after an hour, or when the collector starts again, and only"
    " the session that opened it sees it; open it again"
)
_log = structlog.get_logger()

P = ParamSpec("P")


class OpenedFile(NamedTuple):
    """A file that is open until a time of the monotonic clock, in s, for a session, or for all if None.

    Its profile is the only one of the `service` in the store of opened files, and takes `size` bytes there.
    """

    name: str
    service: str
    type: str
    size: int
    session: str | None
    until: float


class ReadFile(NamedTuple):
    """A file that a worker has read: its name, and its profile, or why it is refused."""

    name: str
    outcome: PlacedProfile | Refusal | ProfileError | OSError


# What a worker returns: the files, or the error if there are none.
_Read = Sequence[ReadFile] | PushInvalid | OSError


def read_form(secret: str, limits: Limits, body: bytes | Path, boundary: str) -> _Read:
    """Read the files of a form, in a worker: the base, if there is one, then the other.

    `secret` is what nobody can guess. Each file has the limits of one submit.
    """
    try:
        content = body if isinstance(body, bytes) else body.read_bytes()
        parts = form_parts(content, boundary, _MOST_PARTS)
    except (PushInvalid, OSError) as error:
        return error.with_traceback(None)
    given = [parts[field] for field in _FIELDS if field in parts and parts[field].content]
    if not given:
        return PushInvalid(f"no file was chosen, or it is empty; choose {FORMATS}")
    return [
        _read_file(part.content, part.file_name, f"{number}{secret}", limits)
        for number, part in enumerate(given)
    ]


def read_paths(secret: str, limits: Limits, paths: Sequence[Path]) -> _Read:
    """Read files of this machine, in a worker, as `read_form` reads those of a form."""
    found = []
    for number, path in enumerate(paths):
        try:
            with path.open("rb") as file:
                content = file.read(max(limits.compressed_bytes, limits.inflated_bytes) + 1)
            found.append(_read_file(content, path.name, f"{number}{secret}", limits))
        except OSError as error:
            found.append(ReadFile(path.name, PushInvalid(error.strerror or str(error))))
    return found


def _read_file(content: bytes, name: str, secret: str, limits: Limits) -> ReadFile:
    """Read one file of any format."""
    short = service_called(name.rpartition("/")[2].rpartition("\\")[2])[:_LONGEST_NAME] or "file"
    try:
        bare = BODY_TIME.spend(content, pprof_of, content, limits)
        of_file = PushBody(bare, partial(_only_profile, f"{short}{_MARK}{secret}"))
        (placed,) = validate_pushes([of_file], limits)
        if isinstance(placed, Exception):
            raise placed
        for outcome in placed:
            if isinstance(outcome, Exception):
                raise outcome
            return ReadFile(short, outcome)
        raise EmptyProfile("the profile has no samples")
    except LimitExceeded as error:
        return ReadFile(short, error.with_traceback(None))
    except ProfileError as error:
        return ReadFile(short, PushInvalid(f"not a profile: {error}"))
    except (Refusal, OSError) as error:
        return ReadFile(short, error.with_traceback(None))


def _only_profile(service: str, content: bytes, _: Limits) -> list[Unpacked]:
    return [PushedProfile(content, lambda header, _: Series(service, _type_of(header)))]


def _type_of(header: Header) -> str:
    """Return the type by what a profile measures: files don't say as what they would be submitted."""
    return CPU if is_cpu(header) else next(iter(likely_types(header)), OTHER)


class OpenedFiles:
    """The files that are open, in a store of their own; each is closed after `seconds`."""

    def __init__(
        self, store: Store, tasks: BlobTasks, kept_merges: KeptMerges, limits: Limits, seconds: float
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.kept_merges = kept_merges
        self.locks = Locks(store.catalog.database.leases)
        self._commits = Commits(store)
        self._limits = limits
        self.seconds = seconds
        self._files: dict[str, OpenedFile] = {}

    def of(self, session: str) -> list[OpenedFile]:
        """Return the files that a session sees, the newest first."""
        now = time.monotonic()
        return [
            file
            for file in reversed(self._files.values())
            if file.session in {None, session} and now < file.until
        ]

    def scope_of(self, session: str) -> Scope:
        """Return the services of the files that a session sees."""
        return Scope(tuple(file.service for file in self.of(session)))

    def named(self, service: str) -> OpenedFile:
        """Return the file of a service. Raises NoSuchFile."""
        if service not in self._files:
            raise NoSuchFile(NOT_OPEN)
        return self._files[service]

    async def open(
        self,
        session: str | None,
        read: Callable[Concatenate[str, Limits, P], _Read],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> list[OpenedFile]:
        """Open the files that `read` reads in a worker: `read_form` or `read_paths`, with these arguments.

        Raises FilesFull, FileRefused for a file that can't be read,
        NotComparable if there are two and they measure different things, TaskOutOfMemory, WorkerUnavailable,
        NotStored, CatalogFails and PushInvalid.
        """
        self._check_room(0)
        secret = secrets.token_hex(8)
        found = await self.tasks.workers.run(read, secret, self._limits, *args, **kwargs)
        if isinstance(found, OSError):
            raise not_stored("file", found) from found
        if isinstance(found, Exception):
            raise found
        profiles = _profiles(found)
        self._check_room(sum(profile.facts.size for _, profile in profiles))
        until = time.monotonic() + self.seconds
        opened = [
            OpenedFile(name, profile.series.service, profile.series.type, profile.facts.size, session, until)
            for name, profile in profiles
        ]
        # From here on they count, though nobody knows their names yet.
        self._files |= {file.service: file for file in opened}
        try:
            for _, profile in profiles:
                await self._commits.add(Submission(profile.content, profile.series, profile.facts))
        except BaseException:
            for file in opened:  # `run` deletes what was stored of them
                self._files[file.service] = file._replace(until=0.0)
            raise
        own = [file for file in self._files.values() if file.session == session is not None]
        for file in own[: max(0, len(own) - MOST_OF_SESSION)]:
            await self._close(file)
        return opened

    def _check_room(self, size: int) -> None:
        """Raise FilesFull if there is no room for two more files of together this size."""
        taken = sum(file.size for file in self._files.values())
        if len(self._files) + MOST_AT_ONCE > _MOST_FILES or taken + size > _MOST_BYTES:
            raise FilesFull(
                f"{len(self._files)} files of {taken >> 20} MiB are open; the limits are {_MOST_FILES} files"
                f" and {_MOST_BYTES >> 20} MiB: each is closed an hour after it was opened; try again later"
            )

    async def run(self) -> NoReturn:
        """Close the files whose time is up, again and again."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            for file in [file for file in self._files.values() if file.until <= now]:
                await self._close(file)

    async def close_all(self) -> None:
        """Close all files, so that no worker saves their rows."""
        for file in [*self._files.values()]:
            await self._close(file)

    async def _close(self, file: OpenedFile) -> None:
        """Delete a file, and what workers have of it. What stays is deleted at the next start."""
        if self._files.pop(file.service, None) is None:
            return  # somebody else closes it
        owner = file.service, file.type
        try:
            async with self.locks.changing(*owner) as lease:
                blobs = await asyncio.to_thread(self.store.catalog.live, Selection(*owner))
                await delete_live(self.store, self.tasks, lease, owner, blobs)
            await asyncio.to_thread(self.kept_merges.clear)
        except (OSError, SQLAlchemyError, CatalogFails, LeaseHeld, LeaseLost, WorkerUnavailable) as error:
            _log.warning("opened file not deleted", reason=str(error))


def _profiles(found: Sequence[ReadFile]) -> list[tuple[str, PlacedProfile]]:
    """Return the names and profiles of files. Raises FileRefused and NotComparable."""
    profiles = []
    for name, outcome in found:
        if isinstance(outcome, Exception):
            raise FileRefused(name, outcome)
        profiles.append((name, outcome))
    types = {profile.series.type: name for name, profile in profiles}
    if len(types) > 1:
        (one, of_one), (other, of_other) = types.items()
        raise NotComparable(
            f"{of_one} is of the type {one}, and {of_other} of the type {other}: a difference takes two"
            " profiles of one type; open them one by one"
        )
    return profiles


@asynccontextmanager
async def open_files(
    folder: DataFolder, tasks: BlobTasks, limits: Limits, seconds: float = SECONDS
) -> AsyncIterator[OpenedFiles]:
    """Yield the opened files of a collector; there are none at first. At the end, they are deleted.

    `folder` and `tasks` are the collector's. Raises FolderUnusable and
    CatalogUnreadable.
    """
    path = folder.opened

    def clear() -> None:
        shutil.rmtree(path, ignore_errors=True)
        for rows in folder.rows.glob(f"*{_MARK}*"):  # of a process that was killed
            with suppress(OSError):
                rows.unlink()

    await asyncio.to_thread(clear)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, clear)
        own = stack.enter_context(await asyncio.to_thread(DataFolder, path))
        database = SQLite(path / CATALOG)
        await asyncio.to_thread(database.open)
        store = stack.enter_context(Store(own, database, folder_storage(path)))
        its_tasks = BlobTasks(tasks.workers, OwnWorkers(tasks.workers), store.catalog, tasks.symbols_of)
        kept_merges = await asyncio.to_thread(KeptMerges, own.merged, _KEPT_MERGES)
        files = OpenedFiles(store, its_tasks, kept_merges, limits, seconds)
        stack.push_async_callback(files.close_all)
        yield files
