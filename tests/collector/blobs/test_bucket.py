"""Blobs in a bucket: the same behaviour as in a folder, and what happens when the object store fails.

They need a Ceph, which takes seconds to start and only the stage `shared` starts. Some need Azurite.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pgo_collector.blobs.bucket import Bucket, open_bucket
from pgo_collector.blobs.storage import MISSING, NewBlob
from pgo_collector.errors import StorageGone, StorageSlow, StorageUnusable

from tests.collector.http.test_routes import assert_problem
from tests.collector.middle import Middle
from tests.faults.stacks import EPOCH, profile_of, tally
from tests.interop.ceph_cluster import Gateway
from tests.server import Server

pytestmark = pytest.mark.bucket

NAME = "svc/cpu/region=a%2Fb/2026-11-25/1-00.pb.gz"
OTHER = "svc/cpu/region=a%2Fb/2026-11-26/2-00.pb.gz"


def new(name: str, content: bytes, beside: str = "") -> NewBlob:
    return NewBlob(name, beside, content, len(content))


@pytest.fixture
def middle(gateway: Gateway, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Middle]:
    del url  # which sets the environment that this changes
    middle = Middle(gateway.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", middle.url)
    yield middle
    middle.close()


def test_a_put_whose_answer_is_lost_is_made_once_more_and_found_done(url: str, middle: Middle) -> None:
    storage = open_bucket(Bucket(url, 29, 4))
    middle.lost = 1
    assert storage.create([new(NAME, b"content")]) == {}
    puts = [line for line in middle.seen if line.startswith(b"PUT")]
    assert len(puts) == 2
    assert storage.read(NAME) == b"content"


def test_errors_of_the_store_are_retried_and_then_told(url: str, middle: Middle) -> None:
    storage = open_bucket(Bucket(url, 28, 4))
    middle.errors = 2
    assert storage.create([new(NAME, b"content")]) == {}
    middle.errors = 1000
    failures = storage.create([new(OTHER, b"content")])
    assert isinstance(failures[OTHER], StorageGone)
    assert "500" in str(failures[OTHER])
    assert len(middle.seen) < 20
    middle.errors = 0
    assert storage.create([new(OTHER, b"content")]) == {}


def test_a_missing_bucket_and_wrong_keys_are_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = open_bucket(Bucket("s3://no-such-bucket/x", 30, 4))
    for ask in (nowhere.ping, lambda: nowhere.read(NAME), lambda: [*nowhere.read_all([NAME])]):
        with pytest.raises(StorageGone, match="no bucket s3://no-such-bucket/x"):
            ask()
    with pytest.raises(StorageUnusable, match="no-such-bucket"):
        nowhere.verify()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageUnusable, match="403"):
        open_bucket(Bucket(url, 27, 4)).verify()


@contextmanager
def paused(gateway: Gateway) -> Iterator[None]:
    gateway.send(signal.SIGSTOP)
    try:
        yield
    finally:
        gateway.send(signal.SIGCONT)


def test_a_store_that_hangs_is_slow_and_one_that_is_gone_is_gone(url: str, gateway: Gateway) -> None:
    open_bucket(Bucket(url, 30, 4)).replace(NAME, b"content")
    storage = open_bucket(Bucket(url, 1, 4))
    with paused(gateway), pytest.raises(StorageSlow, match="PGOF_STORAGE_SECONDS"):
        storage.read(NAME)
    gateway.send(signal.SIGKILL)
    try:
        with pytest.raises(StorageGone):
            storage.read(NAME)
    finally:
        gateway.start()
    assert open_bucket(Bucket(url, 30, 4)).read(NAME) == b"content"


@pytest.mark.long
def test_a_store_may_put_what_its_client_has_given_up(url: str, gateway: Gateway) -> None:
    """So a profile that was deleted can come back with a reindex: see docs/past-one-machine.md."""
    storage = open_bucket(Bucket(url, 1, 4))
    with paused(gateway), pytest.raises(StorageSlow):
        storage.replace(OTHER, b"late")
    deadline = time.monotonic() + 60
    patient = open_bucket(Bucket(url, 30, 4))
    while patient.size(OTHER) == MISSING:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert patient.read(OTHER) == b"late"


@pytest.mark.long
def test_a_submit_that_takes_too_long_when_the_server_stops_is_to_be_sent_again(
    middle: Middle, gateway: Gateway, tmp_path: Path
) -> None:
    """It takes half a minute: so long the bucket has to answer, and the submit until then to be done."""
    settings = {
        **gateway.environment,
        "AWS_ENDPOINT_URL": middle.url,
        "PGOF_STORAGE": f"s3://{gateway.new_bucket()}/pgo",
        "PGOF_STORAGE_SECONDS": "25",
        "PGOF_BODY_TIMEOUT": "1",
    }
    with Server(tmp_path / "home", settings) as server, ThreadPoolExecutor() as threads:
        middle.holds = True
        seen = len(middle.seen)
        submitted = threads.submit(server.submit, profile_of("a"))
        while not any(line.startswith(b"PUT") and b".pb.gz" in line for line in middle.seen[seen:]):
            time.sleep(0.01)
        server.process.terminate()
        refused = submitted.result()
        assert_problem(refused, 503)
        assert refused.headers["Retry-After"] == "5"
        assert "the server stops" in refused.json()["detail"]
        assert server.wait() == 0
        assert not server.events("Exception in ASGI application\n")
        middle.let_go()
        server.start()
        assert server.submit(profile_of("a")).status_code == 204
        assert tally(server.merge().content) == {"a": 1}


def test_a_bucket_alone_rebuilds_the_catalog_and_the_same_merges(server: Server) -> None:
    for name in ("a", "b", "c"):
        assert server.submit(profile_of(name)).status_code == 204
        assert server.submit(profile_of(name), query={"labels": "region=eu/1"}).status_code == 204
    before = server.merge().content
    assert tally(before) == {"a": 2, "b": 2, "c": 2}
    combined = server.combine().content
    assert combined == before
    assert server.submit(profile_of("d")).status_code == 204
    after = server.merge().content
    assert not [*(server.data / "blobs").rglob("*.pb.gz")]
    server.stop()
    shutil.rmtree(server.data)
    server.reindex()
    server.start()
    assert server.merge().content == after
    server.restart()
    assert server.merge().content == after


def test_a_merge_is_the_same_bytes_as_of_a_folder(server: Server, tmp_path: Path) -> None:
    with Server(tmp_path / "folder", {"PGOF_STORAGE": ""}) as folder:
        for one in (server, folder):
            for number in range(40):
                profile = profile_of(f"f{number % 7}", time_nanos=EPOCH + number)
                assert one.submit(profile).status_code == 204
        assert server.merge().content == folder.merge().content
        assert server.combine().content == folder.combine().content


def test_while_the_store_is_gone_requests_say_so_and_nothing_is_lost(
    server: Server, gateway: Gateway
) -> None:
    """Takes over 20 s on a busy machine: a gateway is started twice."""
    assert server.submit(profile_of("a")).status_code == 204
    gateway.send(signal.SIGKILL)
    try:
        refused = server.submit(profile_of("b"))
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
        assert "object store fails" in refused.json()["detail"]
        merge = server.merge()  # the worker has no row of it, or has: it must not be answered without it
        assert merge.status_code == 503 or tally(merge.content) == {"a": 1}
        ready = server.client.get("/readyz")
        assert ready.status_code == 503
        assert "object store fails" in ready.json()["fails"]["storage"]
    finally:
        gateway.start()
    assert server.submit(profile_of("b")).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "b": 1}
    deadline = time.monotonic() + 60  # what it found is kept for a second
    while (ready := server.client.get("/readyz")).status_code != 200:
        assert time.monotonic() < deadline, ready.text
        time.sleep(0.1)


def test_while_the_store_hangs_requests_say_so_in_time(stopped: Server, gateway: Gateway) -> None:
    stopped.environment["PGOF_STORAGE_SECONDS"] = "1"
    stopped.start()
    server = stopped
    assert server.submit(profile_of("a")).status_code == 204
    with paused(gateway):
        refused = server.submit(profile_of("b"))
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
        assert "object store is slow" in refused.json()["detail"]
        merge = server.merge()
        assert merge.status_code == 503
        assert "object store is slow" in merge.json()["detail"]
        ready = server.client.get("/readyz")
        assert ready.status_code == 503
        assert "object store is slow" in ready.json()["fails"]["storage"]
        assert server.client.get("/healthz").status_code == 200
    assert server.submit(profile_of("b")).status_code == 204
    assert tally(server.merge().content) == {"a": 1, "b": 1}
    assert not server.events("worker hung")


def test_a_killed_collector_loses_and_doubles_nothing(server: Server) -> None:
    """Kills the server several times while clients submit; takes over 20 s on a busy machine."""
    acknowledged: list[str] = []
    sent = iter(range(10_000))

    def submit() -> None:
        while not stop.is_set():
            name = f"f{next(sent)}"
            with suppress(Exception):
                if server.submit(profile_of(name)).status_code == 204:
                    acknowledged.append(name)

    for _ in range(3):
        stop = threading.Event()
        clients = [threading.Thread(target=submit) for _ in range(4)]
        for client in clients:
            client.start()
        enough = len(acknowledged) + 15
        deadline = time.monotonic() + 120
        while len(acknowledged) < enough and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(server.process.pid, signal.SIGKILL)
        stop.set()
        for client in clients:
            client.join()
        server.kill()
        server.start()
    counts = tally(server.merge().content)
    assert acknowledged
    assert set(acknowledged) <= counts.keys()
    assert set(counts.values()) == {1}


def test_objects_of_others_are_left_alone(server: Server, gateway: Gateway) -> None:
    assert server.submit(profile_of("a")).status_code == 204
    place = server.variables["PGOF_STORAGE"].removeprefix("s3:/")
    server.stop()
    for name in ("notes.txt", "default/cpu/notes", "default/cpu/2026-11-25/x.pb.gz", "folder/"):
        gateway.request("PUT", f"{place}/{name}", b"not ours").raise_for_status()
    server.start()
    assert tally(server.merge().content) == {"a": 1}
    assert {line["file"].rpartition("/")[2] for line in server.events("unknown file ignored")} >= {
        "notes.txt",
        "notes",
        "x.pb.gz",
    }
    gateway.request("PUT", f"{place}/default/cpu/k=v//odd", b"not ours").raise_for_status()
    server.stop()
    failed = server.run("serve")
    assert failed.returncode == 2
    assert "invalid path" in failed.stderr


@pytest.mark.sqlite
def test_backup_and_check_read_the_bucket(server: Server, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert server.submit(profile_of(name)).status_code == 204
    server.combine()
    assert server.submit(profile_of("c")).status_code == 204
    merge = server.merge().content
    done = server.run("backup", str(tmp_path / "backup"))
    assert done.returncode == 0, done.stderr
    checked = server.run("check")
    assert checked.returncode == 0, checked.stdout
    restored = Server(tmp_path / "restored", {"PGOF_STORAGE": ""})
    done = restored.run("restore", str(tmp_path / "backup"))
    assert done.returncode == 0, done.stderr
    with restored:
        assert restored.merge().content == merge


def test_a_start_without_a_store_says_why(server: Server) -> None:
    server.stop()
    server.environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    server.environment["PGOF_STORAGE_SECONDS"] = "1"
    failed = server.run("serve")
    assert failed.returncode == 2
    assert "object store fails" in failed.stderr


def test_labels_that_a_bucket_cannot_name_are_refused(server: Server) -> None:
    labels = ",".join(f"k{number}={'x' * 200}" for number in range(6))
    refused = server.submit(profile_of("a"), query={"labels": labels})
    assert refused.status_code == 400
    assert "send fewer or shorter labels" in refused.json()["detail"]
    assert server.submit(profile_of("a"), query={"labels": "k=short"}).status_code == 204


def policy_of(page: str, bucket: str, user: str, without: str = "") -> str:
    """Return the policy of the documentation for a bucket and a user, without an action if one is named.

    On Ceph the prefix isn't a condition, which its gateway doesn't know where an object is missing, and the
    bucket itself is a resource, too, which it asks for where many objects are deleted.
    """
    (block,) = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    policy = json.loads(
        block.replace("profiles/collector/", f"{bucket}/").replace(":::profiles", f":::{bucket}")
    )
    for statement in policy["Statement"]:
        statement.pop("Condition", None)
        statement["Resource"] = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statement["Principal"] = {"AWS": [f"arn:aws:iam:::user/{user}"]}
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        statement["Action"] = [action for action in actions if action != without]
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Action"]]
    return json.dumps(policy)


@pytest.mark.parametrize("without", ["", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"])
def test_the_documented_rights_are_enough_and_none_is_too_many(
    without: str, gateway: Gateway, tmp_path: Path
) -> None:
    """A user that doesn't own the bucket has the documented rights, or all but one that it needs.

    On Ceph it could read its objects without a right, as they are its own.
    """
    bucket, user = gateway.new_bucket(), gateway.new_user()
    page = (Path(__file__).parents[3] / "docs" / "object-storage.md").read_text()
    policy = policy_of(page, bucket, user["AWS_ACCESS_KEY_ID"], without)
    gateway.request("PUT", f"/{bucket}?policy", policy.encode()).raise_for_status()
    server = Server(tmp_path, {**user, "PGOF_STORAGE": f"s3://{bucket}/pre/fix"})
    try:
        if without:
            with pytest.raises(AssertionError):
                server.start()
            return
        server.start()
        for name in ("a", "b"):
            assert server.submit(profile_of(name)).status_code == 204
        assert server.client.get("/readyz").json()["fails"] == {}
        assert server.combine().status_code == 200
        server.restart()
        assert tally(server.merge().content) == {"a": 1, "b": 1}
    finally:
        server.kill()
