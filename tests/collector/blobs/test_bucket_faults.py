"""Errors of a bucket whose object store fails; the tests play the store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest
from pgo_collector.blobs.bucket import Bucket, BucketStorage, open_bucket
from pgo_collector.blobs.copies import Copies
from pgo_collector.blobs.storage import NewBlob
from pgo_collector.errors import StorageGone, StorageSlow, StorageUnusable
from pgo_collector.settings import Settings
from pgo_collector.store.store import storage_of

pytestmark = pytest.mark.any_store

NAME = "svc/cpu/2026-11-25/1-00.pb.gz"
NEW = NewBlob(NAME, "", b"content", 7)
OK, NOT_FOUND, CHANGED = 200, 404, 412


class ObjectStore:
    """An object store that answers as `play` says of a request's headers: with a status, and an ETag or else
    the text of an error. It has the same content for each object.
    """

    def __init__(self) -> None:
        self.play: Callable[[Message[str, str]], tuple[int, str]] = lambda _: (OK, "x")
        self.seen: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                store.seen.append(f"{self.command} {self.path}")
                status, text = store.play(self.headers)
                content = b"content" if status == OK else text.encode()
                self.send_response(status)
                self.send_header("ETag", text if status == OK else "x")
                self.send_header("Last-Modified", "Wed, 25 Nov 2026 00:00:00 GMT")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815 - http.server's

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's
                """Say nothing."""

        return Handler


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    store = ObjectStore()
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    yield store
    store.close()


@pytest.fixture
def bucket(store: ObjectStore) -> BucketStorage:
    del store  # whose address this reads
    return BucketStorage(Bucket("s3://profiles/pre", 20, 4))


def error(code: str) -> str:
    return f"<Error><Code>{code}</Code></Error>"


def test_a_missing_bucket_is_named(store: ObjectStore, bucket: BucketStorage) -> None:
    store.play = lambda _: (NOT_FOUND, error("NoSuchBucket"))
    for ask in (bucket.ping, lambda: bucket.read(NAME), lambda: [*bucket.read_all([NAME])]):
        with pytest.raises(StorageGone, match="no bucket s3://profiles/pre"):
            ask()
    with pytest.raises(StorageUnusable, match="no bucket s3://profiles/pre"):
        bucket.verify()


def test_a_missing_object_is_not_a_missing_bucket(store: ObjectStore, bucket: BucketStorage) -> None:
    store.play = lambda _: (NOT_FOUND, error("NoSuchKey"))
    bucket.ping()
    with pytest.raises(FileNotFoundError, match=f"s3://profiles/pre/{NAME}"):
        bucket.read(NAME)


def test_wrong_keys_end_a_start(store: ObjectStore, bucket: BucketStorage) -> None:
    store.play = lambda _: (403, error("SignatureDoesNotMatch"))
    with pytest.raises(StorageUnusable, match="403"):
        bucket.verify()


def test_a_store_that_is_busy_is_slow(store: ObjectStore, bucket: BucketStorage) -> None:
    store.play = lambda _: (503, error("SlowDown"))
    with pytest.raises(StorageSlow, match="PGOF_STORAGE_SECONDS"):
        bucket.read(NAME)
    assert len(store.seen) == 3


def test_a_store_that_is_gone_fails_each_blob(
    store: ObjectStore, bucket: BucketStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is put once more: only that could tell whether the first put has arrived."""
    store.play = lambda _: (500, "")
    failures = bucket.create([NEW])
    assert isinstance(failures[NAME], StorageGone)
    assert len(store.seen) == 6
    deleted = bucket.delete([NAME, "other"])
    assert [*deleted] == [NAME, "other"]
    assert all(isinstance(each, StorageGone) for each in deleted.values())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageGone, match="object store fails"):
        BucketStorage(Bucket("s3://profiles/pre", 1, 4)).read(NAME)


def test_a_put_whose_tries_all_fail_is_made_once_more(store: ObjectStore, bucket: BucketStorage) -> None:
    store.play = lambda _: (500, "") if len(store.seen) <= 3 else (OK, "x")
    assert bucket.create([NEW]) == {}
    assert [line.partition(" ")[0] for line in store.seen] == ["PUT"] * 4


def test_a_store_that_ignores_a_condition_is_refused(store: ObjectStore, bucket: BucketStorage) -> None:
    with pytest.raises(StorageUnusable, match="ignores If-None-Match"):
        bucket.verify()
    puts = count()

    def play(headers: Message[str, str]) -> tuple[int, str]:
        return (CHANGED, "") if "If-None-Match" in headers and next(puts) else (OK, "x")

    store.play = play
    with pytest.raises(StorageUnusable, match="ignores If-Match"):
        bucket.verify()


def test_a_store_may_take_etags_without_their_quotes(store: ObjectStore, bucket: BucketStorage) -> None:
    """Ceph 16.2 takes ETags only without their quotes."""
    store.play = lambda headers: (CHANGED, "") if '"' in headers.get("If-Match", "") else (OK, '"x"')
    assert bucket.update(NAME, lambda _: b"new")
    assert bucket.update(NAME, lambda _: b"newer")
    assert len([line for line in store.seen if line.startswith("PUT")]) == 3


def test_an_object_that_others_replace_all_the_time_is_not_put_together_of_several(
    store: ObjectStore, bucket: BucketStorage, tmp_path: Path
) -> None:
    store.play = lambda headers: (CHANGED, "") if "If-Match" in headers else (OK, "x")
    with pytest.raises(StorageSlow, match="other processes change it all the time"):
        bucket.open_local(NAME, "1", Copies(tmp_path, 1000))
    assert not [*tmp_path.iterdir()]


def test_who_stops_reading_has_no_more_requests_sent(store: ObjectStore, bucket: BucketStorage) -> None:
    reading = bucket.read_all(f"svc/{number}" for number in range(1000))
    assert next(reading) == b"content"
    reading.close()  # type: ignore[attr-defined] # it is a generator
    assert len(store.seen) <= 2 * 4


def test_a_change_that_others_undo_each_time_is_given_up(memory_url: str) -> None:
    bucket = open_bucket(Bucket(memory_url, 30, 4))
    turns = count()

    def change(_: bytes | None) -> bytes:
        bucket.replace(NAME, b"%d" % next(turns))
        return b"mine"

    with pytest.raises(StorageSlow, match="other processes change it all the time"):
        bucket.update(NAME, change)
    assert bucket.read(NAME) == b"%d" % (next(turns) - 1)


def test_urls_and_names_that_no_store_has_are_told(memory_url: str) -> None:
    with pytest.raises(StorageUnusable, match="PGOF_STORAGE=nothing://x"):
        BucketStorage(Bucket("nothing://x", 30, 4))
    bucket = open_bucket(Bucket(memory_url, 30, 4))
    with pytest.raises(OSError, match="svc//x"):
        bucket.read("svc//x")


def test_versions_are_right_of_any_number_of_folders(memory_url: str) -> None:
    area = open_bucket(Bucket(memory_url, 30, 4)).area("releases")
    area.replace("svc/0/1.json", b"one")
    first = area.versions("svc/0", 0)
    for number in range(1, 1001):
        assert area.versions(f"svc/{number}", 0) == {}
    area.replace("svc/0/2.json", b"two")
    assert area.versions("svc/0", 0) == {**first, "2.json": area.versions("svc/0", 0)["2.json"]}


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pgo_collector.blobs.bucket", None)
    with pytest.raises(StorageUnusable, match=r"pip install pgo-collector\[s3\]"):
        storage_of(Settings(storage="s3://profiles/pre"))
