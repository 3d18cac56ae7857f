"""Test spooled profiles on a real disk: order, bounds, damage and faults."""

from __future__ import annotations

import logging
import multiprocessing
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent import CollectorUnavailable, DiskSpool, Dropped, KeyRefused, SubmitRefused
from pgo_agent.endpoint import Upload
from pgo_agent.errors import NotReadable
from pgo_agent.spool import pack, unpack

from tests.agent.spooling import drain_into, put_many

UPLOADS = [Upload(f"profile {number}".encode() * 50, (("service", "shop"),)) for number in range(6)]
SIZE = len(pack(UPLOADS[0]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "spool"


@pytest.fixture
def spool(folder: Path) -> DiskSpool:
    return DiskSpool(folder)


def filled(spool: DiskSpool, *uploads: Upload) -> None:
    for upload in uploads:
        assert spool.put(upload)


def drained(spool: DiskSpool) -> list[Upload]:
    taken: list[Upload] = []
    spool.drain(taken.append, Event())
    return taken


def refusing(error: Exception) -> Callable[[Upload], None]:
    def send(_: Upload) -> None:
        raise error

    return send


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_what_is_put_survives_the_spool_and_is_sent_once_in_order(folder: Path) -> None:
    filled(DiskSpool(folder), *UPLOADS)
    assert drained(DiskSpool(folder)) == UPLOADS
    assert drained(DiskSpool(folder)) == []
    assert files(folder) == []


def test_others_on_the_machine_cannot_read_it(spool: DiskSpool, folder: Path) -> None:
    filled(spool, UPLOADS[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_outage_keeps_all(spool: DiskSpool) -> None:
    filled(spool, *UPLOADS)
    with pytest.raises(CollectorUnavailable):
        spool.drain(refusing(CollectorUnavailable(1, "down")), Event())
    assert not spool.dropped
    assert drained(spool) == UPLOADS


def test_what_is_refused_is_dropped_and_the_rest_is_sent(
    spool: DiskSpool, caplog: pytest.LogCaptureFixture
) -> None:
    filled(spool, *UPLOADS[:3])
    taken: list[Upload] = []

    def send(upload: Upload) -> None:
        if upload == UPLOADS[1]:
            raise SubmitRefused(413, "too large")
        taken.append(upload)

    spool.drain(send, Event())
    assert taken == [UPLOADS[0], UPLOADS[2]]
    assert spool.dropped == {Dropped.REFUSED: 1}
    assert "413 too large" in caplog.text
    assert drained(spool) == []


def test_a_refused_key_keeps_what_it_is_refused_for_and_the_rest_is_sent(
    spool: DiskSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another service's profiles don't wait. One profile of a refused service is tried and read a pass."""
    of_stock = [Upload(upload.body, (("service", "stock"),)) for upload in UPLOADS[:3]]
    nameless = [Upload(upload.body) for upload in UPLOADS[:2]]
    filled(spool, *UPLOADS[:3], *of_stock, *nameless)
    tried: list[Upload] = []
    read: list[Path] = []

    def counted(path: Path, content: bytes) -> Upload:
        read.append(path)
        return unpack(path, content)

    def send(upload: Upload) -> None:
        tried.append(upload)
        if upload.query:
            raise KeyRefused(403, f"not for {upload.query[0][1]}")

    monkeypatch.setattr("pgo_agent.spool.unpack", counted)
    with pytest.raises(KeyRefused, match="403 not for shop"):
        spool.drain(send, Event())
    assert [upload.query for upload in tried] == [UPLOADS[0].query, of_stock[0].query, (), ()]
    read.clear()
    with pytest.raises(KeyRefused):
        spool.drain(send, Event())
    assert len(read) == 2
    assert not spool.dropped
    assert drained(spool) == [*UPLOADS[:3], *of_stock]


def test_what_is_kept_for_the_key_grows_too_old_like_the_rest(folder: Path) -> None:
    spool = DiskSpool(folder, max_age=3600)
    filled(spool, *UPLOADS[:2])
    with pytest.raises(KeyRefused):
        spool.drain(refusing(KeyRefused(401, "no such key")), Event())
    for number, file in enumerate(files(folder)):
        file.rename(folder / f"{time.time_ns() - 3601 * 10**9 + number:020}.profile")
    assert drained(spool) == []
    assert spool.dropped == {Dropped.TOO_OLD: 2}


def test_it_ends_between_two_profiles_when_told_to(spool: DiskSpool) -> None:
    filled(spool, *UPLOADS)
    taken: list[Upload] = []
    until = Event()

    def send(upload: Upload) -> None:
        taken.append(upload)
        until.set()

    spool.drain(send, until)
    assert taken == UPLOADS[:1]
    assert drained(spool) == UPLOADS[1:]


def test_the_oldest_make_room(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = DiskSpool(folder, max_bytes=3 * SIZE)
    filled(spool, *UPLOADS)
    assert sum(file.stat().st_size for file in files(folder)) <= 3 * SIZE
    assert spool.dropped == {Dropped.NO_ROOM: 3}
    assert caplog.text.count("spooled profile dropped") == 3
    assert drained(spool) == UPLOADS[3:]


def test_one_that_is_larger_than_the_spool_pushes_nothing_out(folder: Path) -> None:
    spool = DiskSpool(folder, max_bytes=3 * SIZE)
    filled(spool, *UPLOADS[:2])
    assert not spool.put(Upload(bytes(4 * SIZE)))
    assert drained(spool) == UPLOADS[:2]


def test_what_is_too_old_is_dropped(folder: Path) -> None:
    spool = DiskSpool(folder, max_age=3600)
    filled(spool, *UPLOADS[:3])
    oldest, *_ = files(folder)
    oldest.rename(folder / f"{time.time_ns() - 3601 * 10**9:020}.profile")
    assert drained(spool) == UPLOADS[1:3]
    assert spool.dropped == {Dropped.TOO_OLD: 1}


def test_a_clock_that_steps_back_changes_no_order_and_drops_nothing(folder: Path) -> None:
    spool = DiskSpool(folder, max_age=3600)
    filled(spool, UPLOADS[0])
    (first,) = files(folder)
    # As if it had arrived before the clock, which was a year ahead, was corrected.
    first.rename(folder / f"{time.time_ns() + 365 * 86400 * 10**9:020}.profile")
    filled(spool, *UPLOADS[1:])
    assert drained(spool) == UPLOADS
    assert not spool.dropped


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:0],
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: b"x" + content,
    ],
    ids=["empty", "cut", "longer", "shifted"],
)
def test_a_damaged_profile_is_dropped_and_the_rest_is_sent(
    spool: DiskSpool, folder: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    filled(spool, *UPLOADS[:3])
    _, second, _ = files(folder)
    second.write_bytes(damage(second.read_bytes()))
    assert drained(spool) == [UPLOADS[0], UPLOADS[2]]
    assert spool.dropped == {Dropped.DAMAGED: 1}
    assert str(second) in caplog.text


def test_files_of_others_stay(spool: DiskSpool, folder: Path) -> None:
    filled(spool, UPLOADS[0])
    for name in ("notes.txt", "mine.profile"):
        (folder / name).write_text("not ours")
    assert drained(spool) == UPLOADS[:1]
    assert [file.name for file in files(folder)] == ["mine.profile", "notes.txt"]


@given(st.binary())
def test_arbitrary_bytes_are_no_profile(content: bytes) -> None:
    with pytest.raises(NotReadable):
        unpack(Path("entry"), content)


@given(st.binary(max_size=200), st.lists(st.tuples(st.text(), st.text()), max_size=3), st.data())
def test_each_byte_is_vouched_for(body: bytes, query: list[tuple[str, str]], data: st.DataObject) -> None:
    upload = Upload(body, tuple(query))
    content = bytearray(pack(upload))
    assert unpack(Path("entry"), bytes(content)) == upload
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NotReadable):
        unpack(Path("entry"), bytes(content))


def test_a_folder_that_cannot_be_made_is_only_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = DiskSpool(tmp_path / "file" / "spool")
    with caplog.at_level(logging.WARNING):
        assert not spool.put(UPLOADS[0])
    assert "profile not spooled" in caplog.text
    assert drained(spool) == []


def test_processes_share_a_folder(folder: Path, tmp_path: Path) -> None:
    """Three processes write and two send at the same time; each profile is sent by one of them."""
    context = multiprocessing.get_context("spawn")
    taken = [tmp_path / "first", tmp_path / "second"]
    writers = [context.Process(target=put_many, args=(folder, first)) for first in (0, 100, 200)]
    senders = [context.Process(target=drain_into, args=(folder, file)) for file in taken]
    for process in writers + senders:
        process.start()
    for process in writers + senders:
        process.join(120)
        assert process.exitcode == 0
    sent = [int(line) for file in taken if file.exists() for line in file.read_text().splitlines()]
    left = [int(upload.body) for upload in drained(DiskSpool(folder))]
    assert sorted(sent + left) == [*range(20), *range(100, 120), *range(200, 220)]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # pytest has other threads
def test_a_child_that_is_forked_while_a_profile_is_sent_does_not_hold_it(spool: DiskSpool) -> None:
    filled(spool, UPLOADS[0])
    children: list[int] = []

    def send(_: Upload) -> None:
        child = os.fork()
        if not child:
            time.sleep(30)
            os._exit(0)
        children.append(child)
        raise CollectorUnavailable(1, "down")

    with pytest.raises(CollectorUnavailable):
        spool.drain(send, Event())
    try:
        assert drained(spool) == UPLOADS[:1]
    finally:
        os.kill(children[0], 9)
        os.waitpid(children[0], 0)


def test_nothing_is_kept_where_all_that_is_there_is_being_sent(folder: Path) -> None:
    spool = DiskSpool(folder, max_bytes=SIZE)
    filled(spool, UPLOADS[0])

    def send(_: Upload) -> None:
        assert not DiskSpool(folder, max_bytes=SIZE).put(UPLOADS[1])
        raise CollectorUnavailable(1, "down")

    with pytest.raises(CollectorUnavailable):
        spool.drain(send, Event())
    assert drained(spool) == UPLOADS[:1]
    assert not spool.dropped


def test_what_is_being_sent_is_not_dropped(folder: Path) -> None:
    spool = DiskSpool(folder, max_bytes=2 * SIZE)
    filled(spool, *UPLOADS[:2])
    sending, go_on = Event(), Event()
    taken: list[Upload] = []

    def send(upload: Upload) -> None:
        taken.append(upload)
        sending.set()
        assert go_on.wait(120)

    thread = Thread(target=spool.drain, args=(send, go_on))
    thread.start()
    assert sending.wait(120)
    filled(spool, UPLOADS[2])
    go_on.set()
    thread.join()
    assert taken == UPLOADS[:1]
    assert drained(spool) == [UPLOADS[2]]
    assert spool.dropped == {Dropped.NO_ROOM: 1}
