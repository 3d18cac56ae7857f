"""A damaged data folder: merges go on, and say what they leave out."""

from __future__ import annotations

import gzip
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.stacks import DAY, EPOCH, profile_of, tally
from tests.server import Server, descendants


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as server:
        yield server


def submit_all(server: Server, stacks: str) -> None:
    for stack in stacks:
        profile = profile_of(stack, time_nanos=EPOCH + ord(stack) * DAY)
        assert server.submit(profile).status_code == 204


def make_folder(blob: Path) -> None:
    blob.unlink()
    blob.mkdir()
    (blob / "within").write_text("hello")


def make_link_to_itself(blob: Path) -> None:
    blob.unlink()
    blob.symlink_to(blob)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "text": lambda blob: blob.write_text("hello"),
    "empty": lambda blob: blob.write_bytes(b""),
    "zeros": lambda blob: blob.write_bytes(bytes(blob.stat().st_size)),
    "truncated": lambda blob: os.truncate(blob, blob.stat().st_size - 10),
    "another profile": lambda blob: blob.write_bytes(profile_of("not submitted")),
    "another kind": lambda blob: blob.write_bytes(profile_of("x", type_="wall")),
    "a folder": make_folder,
    "a bomb": lambda blob: blob.write_bytes(gzip.compress(bytes(64 << 20))),
    "unreadable": make_link_to_itself,  # a mode wouldn't keep root from reading
    "gone": Path.unlink,
}
STRANGERS = ("note.txt", "blobs/note", "blobs/default/note", "blobs/default/cpu/1-ab.pb.gz", "old.pgo")


@pytest.mark.parametrize("catalog", ["lost", pytest.param("kept", marks=pytest.mark.exhaustive)])
def test_all_kinds_of_damage_at_once(server: Server, catalog: str) -> None:
    """All stored profiles but two are damaged, each in another way; later they are restored."""
    damaged = "abcdefghijklm"[: len(DAMAGES)]
    submit_all(server, damaged + "yz")
    blobs = {path: path.read_bytes() for path in server.blobs()}
    broken = list(blobs)[: len(DAMAGES)]  # in the order of their days, which is that of their letters
    for damage, blob in zip(DAMAGES.values(), broken, strict=True):
        damage(blob)
    server.forget_decoded()
    strangers = {server.data / name for name in STRANGERS}
    for path in strangers:
        path.write_text("hello")
    stray = broken[0].with_name(f"{EPOCH}-{'0' * 64}.inputs")
    stray.write_text("hello")

    check_what_is_left(server, broken)
    assert len(server.events("blob left out")) >= len(broken)
    server.kill()
    if catalog == "lost":
        server.reindex()
    server.start()
    warned = {
        line["file"]
        for line in server.events("unknown file ignored") + server.events("pgo-fleet file skipped")
    }
    assert warned >= set(map(str, strangers))
    left = broken if catalog == "kept" else [path for path in broken if path.is_file()]
    check_what_is_left(server, left)
    assert server.combine().status_code == 200
    check_what_is_left(server, left)
    assert {path.read_text() for path in strangers} == {"hello"}

    for path in broken:
        if path.is_dir():
            (path / "within").unlink()
            path.rmdir()
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(blobs[path])
    server.restart()
    assert tally(server.merge().content) == dict.fromkeys(damaged + "yz", 1)
    assert "PGO-Left-Out" not in server.merge().headers


def check_what_is_left(server: Server, broken: list[Path]) -> None:
    answer = server.merge()
    assert answer.status_code == 200
    assert tally(answer.content) == {"y": 1, "z": 1}
    said = answer.headers["PGO-Left-Out"]
    assert [path.name for path in broken if path.name not in said] == []


def test_workers_killed_in_the_middle_of_a_merge(server: Server) -> None:
    stacks = [f"stack {number}" for number in range(150)]
    with ThreadPoolExecutor(8) as clients:
        answers = clients.map(server.submit, map(profile_of, stacks))
        assert {answer.status_code for answer in answers} == {204}
    server.merge()  # in the worker that makes it again below
    stacks.append("one more")
    assert server.submit(profile_of(stacks[-1])).status_code == 204
    workers = [pid for child in server.descendants() for pid in descendants(child)]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)  # so that the merge begins and doesn't end
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(server.merge)
        assert server.client.get("/healthz").text == "OK"
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert tally(answer.result().content) == Counter(stacks)
    assert server.events("worker died")
    assert server.submit(profile_of("next")).status_code == 204
