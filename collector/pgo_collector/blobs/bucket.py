"""A bucket as the storage of blobs: S3 and what speaks like it, Google Cloud Storage, or Azure, by obstore.

Its synchronous calls are made in threads, several at once where many objects are asked for. A request
has a deadline: each try of it ends after `seconds`, and no further try begins after that time.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from errno import EEXIST, EINVAL, ENOENT
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError
from obstore.store import ObjectStore, from_url

from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.storage import MISSING, Change, Listed, Lister, NewBlob, Stored
from pgo_collector.errors import (
    CopyDamaged,
    NameTooLong,
    StorageFails,
    StorageGone,
    StorageSlow,
    StorageUnusable,
)
from pgo_collector.traces.spans import span

if TYPE_CHECKING:
    from obstore import UpdateVersion

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")

# Letters of a name with its prefix, which S3, Google and Azure allow.
_LONGEST_NAME = 1024
# Seconds to set a connection up; the tries of a request, and the pauses between them.
_CONNECT_SECONDS = 3.0
_TRIES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=100), timedelta(seconds=1)
# A thread's stack counts among the memory that a worker may use, and these threads need little.
_STACK_BYTES = 1 << 20
# Names in a page of a listing.
_PAGE = 1000
# Begins the names of what isn't a blob: areas, and the object with which this process tries what the bucket
# does. No service has such a name.
_APART = "."
_PROBE = f"{_APART}pgo-collector-"
# Bytes of an object that are asked for at once, and those above which an open one isn't kept in memory.
_PIECE = 16 << 20
# Attempts to read an object, or to change it, that others replace meanwhile.
_ATTEMPTS = 20
# Folders of which the versions of objects are kept.
_MOST_LISTED = 1000
# What an error says if the bucket is missing, and not the object, and if the store needs time.
_NO_BUCKET = "NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"
_BUSY = "kind: Timeout", "TimedOut", "status: 408", "status: 429", "status: 503", "SlowDown"
# The letters of a reason that are told to clients.
_LONGEST_REASON = 200


class Bucket(NamedTuple):
    """The URL of a bucket and a prefix; the seconds that a request may take, and how many run at once."""

    url: str
    seconds: float
    parallel: int


class BucketStorage:
    """The objects of a bucket below a prefix. Each process has a client of its own: see `open_bucket`."""

    def __init__(self, bucket: Bucket) -> None:
        """Make the client; nothing is sent. Raises StorageUnusable."""
        self._bucket = bucket
        self._probe = f"{_PROBE}{secrets.token_hex(16)}"
        # Ceph 16.2 takes the ETag of a conditional put only without its quotes, and others with them.
        self._quotes_etags = True
        # When folders were listed last, and what was in them.
        self._listed: dict[str, tuple[int, dict[str, str]]] = {}
        # Two requests, as of a blob that is there already, each of which may begin a try just before its
        # deadline.
        self.longest_wait = 4 * bucket.seconds
        self.longest_name = _LONGEST_NAME - len(bucket.url.partition("://")[2])
        deadline = timedelta(seconds=bucket.seconds)
        try:
            self._store: ObjectStore = from_url(
                bucket.url,
                client_options={
                    "timeout": deadline,
                    "connect_timeout": min(deadline, timedelta(seconds=_CONNECT_SECONDS)),
                    "allow_http": _endpoint().startswith("http://"),
                },
                retry_config={
                    "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
                    "max_retries": _TRIES - 1,
                    "retry_timeout": deadline,
                },
            )
        except (BaseError, ValueError) as error:
            raise StorageUnusable(f"PGOF_STORAGE={bucket.url}: {_reason(error)}") from error
        threading.stack_size(_STACK_BYTES)
        self._pool = ThreadPoolExecutor(bucket.parallel, "storage")

    def __reduce__(self) -> tuple[Callable[[Bucket], BucketStorage], tuple[Bucket]]:
        return open_bucket, (self._bucket,)

    def area(self, name: str) -> BucketStorage:
        """Return the storage below the prefix with this name and a dot."""
        return open_bucket(self._bucket._replace(url=self.where(f"{_APART}{name}")))

    def where(self, name: str = "") -> str:
        """Return the URL of an object."""
        return f"{self._bucket.url.rstrip('/')}/{name}".rstrip("/")

    def verify(self) -> None:
        """Write, replace, read, list and delete an object. A bucket that ignores conditions can't be used."""
        try:
            with suppress(AlreadyExistsError):  # by an earlier try, of which the answer was lost
                self._put(self._probe, b"", "create")
            with suppress(AlreadyExistsError):
                self._put(self._probe, b"", "create")
                raise StorageUnusable(
                    f"{self.where()}: the object store ignores If-None-Match, so that blobs could be"
                    " written over; take one with conditional writes"
                )
            _, before = self._ask(_with_version, self._probe)
            self.update(self._probe, lambda _: b"another")
            with suppress(PreconditionError):
                self._put(self._probe, b"", self._only_if(before))
                raise StorageUnusable(
                    f"{self.where()}: the object store ignores If-Match, so that one collector could undo"
                    " what another has done; take one with conditional writes"
                )
            self.lister()("")
            self._delete(self._probe)
        except OSError as error:
            raise StorageUnusable(str(error)) from error

    def ping(self) -> None:
        """Ask for an object that needn't be there."""
        with suppress(FileNotFoundError):
            self.read(self._probe)

    def size(self, name: str) -> int:
        """Return an object's size."""
        try:
            return self._ask(obstore.head, name)["size"]
        except FileNotFoundError:
            return MISSING

    def written_nanos(self, name: str) -> int:
        """Return the end of the second in which the store got an object: it tells whole seconds."""
        return (int(self._ask(obstore.head, name)["last_modified"].timestamp()) + 1) * 10**9 - 1

    def open(self, name: str) -> BinaryIO:
        """Return an object's content, in memory; of a large one, in a file that is deleted already."""
        content = self._ask(_small_content, name)
        if content is not None:
            return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", io.BytesIO(content))))
        file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - the caller closes it
        self._download(name, "", file)
        file.seek(0)
        return file

    def open_local(self, name: str, version: str, copies: Copies, sha256: str = "") -> BinaryIO:
        """Open a copy of an object."""
        key = hashlib.sha256(f"{self.where(name)}\n{version}".encode()).hexdigest()
        return copies.open(key, partial(self._download, name, sha256))

    def _download(self, name: str, sha256: str, file: BinaryIO) -> None:
        """Write an object to an empty file, piece by piece, so that each request has its time.

        Raises CopyDamaged if it has another SHA-256, and OSError.
        """
        for _ in range(_ATTEMPTS):
            meta = self._ask(obstore.head, name)
            file.seek(0)
            file.truncate()
            digest = hashlib.sha256()
            try:
                for start in range(0, meta["size"], _PIECE):
                    end = min(start + _PIECE, meta["size"])
                    piece = self._ask(_piece, name, (start, end), meta["e_tag"])
                    digest.update(piece)
                    file.write(piece)
            except PreconditionError:  # another process has replaced it
                continue
            if sha256 not in {"", digest.hexdigest()}:
                raise CopyDamaged(f"{self.where(name)} is damaged: its SHA-256 is another")
            return
        raise self._changes_too_fast(name)

    def read(self, name: str, last: int | None = None) -> bytes:
        """Get an object, or its end."""
        return self._ask(_content, name, last)

    def read_all(self, names: Iterable[str], last: int | None = None) -> Iterator[bytes | OSError]:
        """Get several objects at once, and as many ahead."""
        for content in self._each(partial(self.read, last=last), names):
            if isinstance(content, StorageFails):
                raise content
            yield content

    def create(self, blobs: Sequence[NewBlob]) -> dict[str, OSError]:
        """Put several blobs at once, each if no object has its name."""
        with span("store", "put blobs", blobs=len(blobs), size=sum(blob.size for blob in blobs)):
            results = [*self._each(self._create, blobs)]
        return {blob.name: error for blob, error in zip(blobs, results, strict=True) if error is not None}

    def _create(self, blob: NewBlob) -> None:
        content = blob.content if isinstance(blob.content, bytes) else blob.content.read_bytes()
        for tries_left in (1, 0):
            try:
                self._put(blob.name, content, "create")
            except AlreadyExistsError:
                # The answer to a try was lost, or an attempt that failed has left it.
                if self.read(blob.name) != content:
                    self.replace(blob.name, content)
                if blob.beside:
                    self._delete(blob.beside)
            except StorageGone:  # it may have come all the same: only a further try can tell
                if not tries_left:
                    raise
                continue
            return

    def replace(self, name: str, content: bytes) -> None:
        """Put an object."""
        self._put(name, content, "overwrite")

    def upload(self, name: str, part: Path) -> None:
        """Put a file, in several parts if it is large."""
        with part.open("rb") as file:
            self._ask(obstore.put, name, file, mode="overwrite", chunk_size=_PIECE, max_concurrency=2)

    def add(self, name: str, content: bytes | Path, *, durably: bool = True) -> None:  # noqa: ARG002
        """Put an object if none has its name."""
        try:
            self._put(name, content.read_bytes() if isinstance(content, Path) else content, "create")
        except AlreadyExistsError:
            raise FileExistsError(EEXIST, os.strerror(EEXIST), self.where(name)) from None

    def update(self, name: str, change: Change) -> bool:
        """Get an object, and put what it becomes if it is still the same."""
        refused: UpdateVersion | None = None
        for _ in range(_ATTEMPTS):
            try:
                content, version = self._ask(_with_version, name)
            except FileNotFoundError:
                content, version = None, None
            if version is not None and version == refused:  # it is still the same, so it was misunderstood
                self._quotes_etags = not self._quotes_etags
            if (new := change(content)) is None:
                return False
            try:
                self._put(name, new, "create" if version is None else self._only_if(version))
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                refused = version
            else:
                return True
        raise self._changes_too_fast(name)

    def _only_if(self, version: UpdateVersion) -> UpdateVersion:
        """Return the mode of a put for this version of an object."""
        etag = version.get("e_tag")
        return version if self._quotes_etags or etag is None else {**version, "e_tag": etag.strip('"')}

    def _changes_too_fast(self, name: str) -> StorageSlow:
        return StorageSlow(f"{self.where(name)}: other processes change it all the time")

    def delete(self, names: Sequence[str], *, durably: bool = False) -> dict[str, OSError]:  # noqa: ARG002
        """Delete objects, many with one request where the store can."""
        try:
            self._ask(obstore.delete, names)
        except FileNotFoundError:  # Google and Azure say so, and the others may be there
            results = self._each(self._delete, names)
            return {name: error for name, error in zip(names, results, strict=True) if error is not None}
        except OSError as error:
            return dict.fromkeys(names, error)
        return {}

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._ask(obstore.delete, [name])

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Do nothing: a bucket has no folders."""

    def lister(self) -> Lister:
        """Return a function that lists the objects of a series, and answers for its folders from that."""
        return _Walk(self).listed

    def objects(self, folder: str = "") -> Iterator[Stored]:
        """Yield all objects below a folder."""
        pages = self._ask(obstore.list, folder or None, chunk_size=_PAGE)
        while (page := self._ask(lambda _: next(pages, None))) is not None:
            for meta in page:
                if not meta["path"].startswith(_APART):
                    written = int(meta["last_modified"].timestamp() * 10**9)
                    yield Stored(meta["path"], meta["size"], written, meta["e_tag"] or "")

    def folder(self, folder: str) -> Listed | None:
        """Return what is in one folder, by one request for a thousand names."""
        found = self._ask(obstore.list_with_delimiter, folder or None)
        begin = len(folder) + 1 if folder else 0
        sizes = {
            meta["path"][begin:]: meta["size"]
            for meta in found["objects"]
            if not meta["path"].startswith(_APART)
        }
        folders = [prefix[begin:] for prefix in found["common_prefixes"] if not prefix.startswith(_APART)]
        return Listed(folders, sizes, sizes.__getitem__) if sizes or folders else None

    def versions(self, folder: str, moment: int) -> dict[str, str]:
        """List a folder, unless that was done since."""
        asked, found = self._listed.get(folder, (-1, {}))
        if asked < moment:
            asked, begin = time.time_ns(), len(folder) + 1
            found = {of.name[begin:]: of.version for of in self.objects(folder)}
            if len(self._listed) >= _MOST_LISTED:
                self._listed.clear()
            self._listed[folder] = asked, found
        return found

    def _put(self, name: str, content: bytes, mode: Literal["create", "overwrite"] | UpdateVersion) -> None:
        if len(name) > self.longest_name:
            raise NameTooLong(
                f"service, type and labels make a name of {len(name)} bytes in the bucket, which takes"
                f" {self.longest_name}: send fewer or shorter labels"
            )
        self._ask(obstore.put, name, content, mode=mode, use_multipart=False)

    def _each(self, function: Callable[[U], T], items: Iterable[U]) -> Iterator[T | OSError]:
        """Yield the result or the error of each item, in their order.

        At most `parallel` calls of the bucket run at once.
        """
        waiting: deque[Future[T | OSError]] = deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(_caught, function, item))
                if len(waiting) == self._bucket.parallel:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _ask(
        self, function: Callable[Concatenate[ObjectStore, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a function of obstore.

        Raises FileNotFoundError, AlreadyExistsError, PreconditionError, StorageFails or OSError.
        """
        try:
            return function(self._store, *args, **kwargs)
        except (AlreadyExistsError, PreconditionError):
            raise
        except FileNotFoundError as error:
            if any(words in str(error) for words in _NO_BUCKET):
                raise StorageGone(f"the object store has no bucket {self.where()}") from None
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), self.where(str(args[0]))) from None
        except ValueError as error:
            raise OSError(EINVAL, _reason(error), self.where()) from None
        except (BaseError, OSError) as error:
            reason = _reason(error)
            if any(words in str(error) for words in _BUSY):
                raise StorageSlow(
                    f"the object store is slow, no answer of {self.where()} within {self._bucket.seconds:g}"
                    f" seconds (PGOF_STORAGE_SECONDS): {reason}"
                ) from None
            raise StorageGone(f"the object store fails, {self.where()}: {reason}") from None


@lru_cache
def open_bucket(bucket: Bucket) -> BucketStorage:
    """Return this process's client of a bucket. Raises StorageUnusable."""
    return BucketStorage(bucket)


class _Walk:
    """A walk over the folders of a bucket: the objects of a series are listed together, and kept for its
    folders.

    Folders above the labels are listed each by itself, or the whole bucket would be in memory.
    """

    def __init__(self, storage: BucketStorage) -> None:
        self._storage = storage
        self._root = ""
        self._folders: dict[str, Listed] = {}

    def listed(self, folder: str) -> Listed | None:
        if folder.count("/") < 2:
            return self._storage.folder(folder)
        if not self._root or not f"{folder}/".startswith(f"{self._root}/"):
            self._load(folder)
        return self._folders.get(folder)

    def _load(self, root: str) -> None:
        self._root, self._folders = root, {}
        sizes: dict[str, dict[str, int]] = {}
        for of in self._storage.objects(root):
            folder, _, name = of.name.rpartition("/")
            if folder not in sizes:
                self._add(sizes, folder)
            sizes[folder][name] = of.size

    def _add(self, sizes: dict[str, dict[str, int]], folder: str) -> None:
        """Add a folder, and those above it up to the root that aren't there."""
        files = sizes[folder] = {}
        self._folders[folder] = Listed([], files, files.__getitem__)
        if folder == self._root:
            return
        above, _, name = folder.rpartition("/")
        if above not in sizes:
            self._add(sizes, above)
        self._folders[above].folders.append(name)


def _content(store: ObjectStore, name: str, last: int | None) -> bytes:
    """Return an object's content, or its last bytes."""
    if last is None:
        return bytes(obstore.get(store, name).bytes())
    try:
        return bytes(obstore.get(store, name, options={"range": {"suffix": last}}).bytes())
    except NotSupportedError:  # Azure's ranges have a beginning
        size = obstore.head(store, name)["size"]
        return bytes(obstore.get_range(store, name, start=max(size - last, 0), end=size))


def _small_content(store: ObjectStore, name: str) -> bytes | None:
    """Return an object's content; None if it is large."""
    found = obstore.get(store, name)
    return bytes(found.bytes()) if found.meta["size"] <= _PIECE else None


def _piece(store: ObjectStore, name: str, piece: tuple[int, int], version: str | None) -> bytes:
    """Return the bytes of an object from a place to another. Raises PreconditionError."""
    return bytes(obstore.get(store, name, options={"range": piece, "if_match": version}).bytes())


def _with_version(store: ObjectStore, name: str) -> tuple[bytes, UpdateVersion]:
    """Return an object's content, and what it is replaced by if it is still the same."""
    found = obstore.get(store, name)
    version = {key: text for key in ("e_tag", "version") if (text := found.meta[key]) is not None}
    return bytes(found.bytes()), cast("UpdateVersion", version)


def _caught(function: Callable[[U], T], item: U) -> T | OSError:
    try:
        return function(item)
    except OSError as error:
        return error


def _reason(error: Exception) -> str:
    """Return the last words of an error's first line, without the request that it is about."""
    line = str(error).partition("\n")[0]
    return line.rpartition(" - ")[2][:_LONGEST_REASON]


def _endpoint() -> str:
    """Return the URL of an S3-compatible object store that isn't Amazon's; "" if there is none."""
    return (
        os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or os.environ.get("AWS_ENDPOINT", "")
    )
