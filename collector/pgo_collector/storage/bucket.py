"""A bucket as the storage of blobs: S3 and what speaks like it, Google Cloud Storage, or Azure, by obstore.

Its synchronous calls are made in threads, several at once where many objects are asked for. A request
has a deadline: each try of it ends after `seconds`, and no further try begins after that time.
"""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from errno import EINVAL, ENOENT
from functools import lru_cache, partial
from typing import BinaryIO, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.store import ObjectStore, from_url

from pgo_collector.errors import NameTooLong, StorageFails, StorageGone, StorageSlow, StorageUnusable
from pgo_collector.storage.storage import MISSING, Listed, Lister, NewBlob, Stored
from pgo_collector.traces.spans import span

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
# The object with which `verify` and `ping` try what the bucket does; no blob has such a name.
_PROBE = ".pgo-collector"
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

    def where(self, name: str = "") -> str:
        """Return the URL of an object."""
        return f"{self._bucket.url.rstrip('/')}/{name}".rstrip("/")

    def verify(self) -> None:
        """Write, read, list and delete an object. A bucket that lets it be written twice can't be used."""
        try:
            self._delete(_PROBE)
            self._put(_PROBE, b"", "create")
            with suppress(AlreadyExistsError):
                self._put(_PROBE, b"", "create")
                raise StorageUnusable(
                    f"{self.where()}: the object store ignores If-None-Match, so that blobs could be"
                    " written over; take one with conditional writes"
                )
            self.read(_PROBE)
            self.lister()("")
            self._delete(_PROBE)
        except AlreadyExistsError as error:
            raise StorageUnusable(f"{self.where()}: another collector starts on it") from error
        except OSError as error:
            raise StorageUnusable(str(error)) from error

    def ping(self) -> None:
        """Ask for an object that needn't be there."""
        with suppress(FileNotFoundError):
            self.read(_PROBE)

    def size(self, name: str) -> int:
        """Return an object's size."""
        try:
            return self._ask(obstore.head, name)["size"]
        except FileNotFoundError:
            return MISSING

    def written_nanos(self, name: str) -> int:
        """Return when the store got an object."""
        return int(self._ask(obstore.head, name)["last_modified"].timestamp() * 10**9)

    def open(self, name: str) -> BinaryIO:
        """Return an object's content, in memory."""
        return cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", io.BytesIO(self.read(name)))))

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
        content = blob.content
        if content is None and blob.part is not None:
            content = blob.part.read_bytes()
        content = content or b""
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

    def delete(self, names: Sequence[str]) -> dict[str, OSError]:
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

    def objects(self, prefix: str | None = None) -> Iterator[Stored]:
        """Yield all objects below a prefix."""
        pages = self._ask(obstore.list, prefix, chunk_size=_PAGE)
        while (page := self._ask(lambda _: next(pages, None))) is not None:
            for meta in page:
                if meta["path"] != _PROBE:
                    written = int(meta["last_modified"].timestamp() * 10**9)
                    yield Stored(meta["path"], meta["size"], written)

    def folder(self, folder: str) -> Listed | None:
        """Return what is in one folder, by one request for a thousand names."""
        found = self._ask(obstore.list_with_delimiter, folder or None)
        begin = len(folder) + 1 if folder else 0
        sizes = {meta["path"][begin:]: meta["size"] for meta in found["objects"] if meta["path"] != _PROBE}
        folders = [prefix[begin:] for prefix in found["common_prefixes"]]
        return Listed(folders, sizes, sizes.__getitem__) if sizes or folders else None

    def _put(self, name: str, content: bytes, mode: Literal["create", "overwrite"]) -> None:
        if len(name) > self.longest_name:
            raise NameTooLong(
                f"service, type and labels make a name of {len(name)} bytes in the bucket, which takes"
                f" {self.longest_name}: send fewer or shorter labels"
            )
        self._ask(obstore.put, name, content, mode=mode, use_multipart=False)

    def _each(self, function: Callable[[U], T], items: Iterable[U]) -> Iterator[T | OSError]:
        """Yield the result or the error of each item, in their order; so many run at once as the bound
        allows.
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

        Raises FileNotFoundError, AlreadyExistsError, StorageFails or OSError.
        """
        try:
            return function(self._store, *args, **kwargs)
        except AlreadyExistsError:
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
