"""Damaged and lost files of releases: nobody builds with anything but what was released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collector.releases_seen import (
    SOON,
    state,
)
from tests.faults.stacks import profile_of, tally
from tests.server import Server


@pytest.fixture
def rules(stopped: Server) -> Path:
    """Return the rules file of the default service, which doesn't exist yet; the collector isn't running."""
    folder = stopped.home / "rules"
    folder.mkdir()
    stopped.environment |= SOON | {"PGOF_RULES_DIR": str(folder)}
    return folder / "default.rules"


def test_rules_are_those_of_the_day_of_the_release(stopped: Server, rules: Path) -> None:
    rules.write_text("drop a\n")
    stopped.start()
    for name in "ab":
        stopped.submit(profile_of(name))
    first = stopped.release()
    assert tally(first.content) == {"b": 1}
    assert first.headers["ETag"] == stopped.merge().headers["ETag"]
    rules.unlink()
    assert stopped.release().content == first.content
    assert stopped.release(format_="folded").text == "b 10000000\n"
    assert stopped.releases(method="POST").status_code == 201
    assert tally(stopped.release().content) == {"a": 1, "b": 1}


def test_what_keeps_a_merge_from_being_made_keeps_no_pipeline_waiting(stopped: Server, rules: Path) -> None:
    stopped.start()
    stopped.submit(profile_of("a"))
    first = stopped.release()
    stopped.submit(profile_of("b"))
    rules.write_text("no rule\n")
    assert stopped.release().content == first.content
    assert stopped.wait_for_log("release not compared")["release"] == 1
    assert stopped.releases(method="POST").status_code == 500
    for blob in stopped.blobs():
        blob.write_bytes(b"")
    rules.unlink()
    assert stopped.release().content == first.content


def test_a_damaged_merge_is_not_released(server: Server) -> None:
    server.submit(profile_of("a"))
    server.merge()
    (kept,) = (server.data / "merged").iterdir()
    for damage in (b"", profile_of("another"), bytes(kept.stat().st_size)):
        kept.write_bytes(damage)
        server.releases(method="POST")
        assert tally(server.release().content) == {"a": 1}
        assert state(server) == ([1], 1, False)
    server.wait_for_log("kept merge damaged", 3)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".pb.gz", b""),
        (".pb.gz", None),
        (".json", b"not json"),
        (".json", None),
        pytest.param(".pb.gz", b"not json", marks=pytest.mark.exhaustive),
        pytest.param(".json", b"", marks=pytest.mark.exhaustive),
    ],
)
def test_a_damaged_release_is_nothing_to_build_with(
    server: Server, suffix: str, damage: bytes | None
) -> None:
    for name in "ab":
        server.submit(profile_of(name))
        server.releases(method="POST")
    damaged = server.area("releases") / "default" / "cpu" / f"2{suffix}"
    whole = damaged.read_bytes()
    if damage is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damage)
    answer = server.release()
    if damage is None and suffix == ".json":  # as if the release had never existed
        assert answer.headers["PGO-Release"] == "1"
        return
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert server.release(format_="folded").status_code == 500
    assert server.releases("/2/pin", "PUT").status_code == 500
    assert server.releases().status_code == 200
    server.restart()
    assert server.events("release damaged")[0]["release"] == 2
    damaged.write_bytes(whole)
    assert tally(server.release().content) == {"a": 1, "b": 1}
    damaged.write_bytes(b"")
    server.submit(profile_of("c"))
    assert server.releases(method="POST").status_code == 201
    assert server.release().headers["PGO-Release"] == "3"


def test_a_damaged_choice_is_no_choice_of_another(server: Server) -> None:
    for name in "ab":
        server.submit(profile_of(name))
        server.releases(method="POST")
    server.releases("/1/pin", "PUT")
    (server.area("releases") / "default" / "cpu" / "choice.json").write_bytes(b"{")
    for answer in (server.release(), server.releases(), server.releases(method="POST")):
        assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert server.releases("/1/pin", "PUT").status_code == 200
    assert tally(server.release().content) == {"a": 1}


def test_a_number_that_a_collector_took_before_it_died_is_skipped(server: Server) -> None:
    """It takes two seconds: so long that collector could still add the record."""
    server.submit(profile_of("a"))
    server.releases(method="POST")
    (server.area("releases") / "default" / "cpu" / "2.pb.gz").write_bytes(b"of that collector")
    server.submit(profile_of("b"))
    made = server.releases(method="POST")
    assert (made.status_code, made.json()["number"]) == (201, 3)
    assert tally(server.release().content) == {"a": 1, "b": 1}


def test_a_current_release_that_is_missing_is_named(server: Server) -> None:
    for name in "ab":
        server.submit(profile_of(name))
        server.releases(method="POST")
    server.releases("/1/pin", "PUT")
    (server.area("releases") / "default" / "cpu" / "1.json").unlink()
    refused = server.release()
    assert (refused.status_code, refused.headers["Content-Type"]) == (500, "application/problem+json")
    assert refused.json()["detail"] == "release 1 is the current one, and missing"
    assert server.releases("/2/pin", "PUT").status_code == 200
    assert tally(server.release().content) == {"a": 1, "b": 1}


def test_a_start_sweeps_what_is_no_release_and_leaves_what_is_not_ours(server: Server) -> None:
    server.submit(profile_of("a"))
    server.release()
    folder = server.area("releases") / "default" / "cpu"
    left = [folder / "2.pb.gz", folder / f"2.{'0' * 64}-folded"]
    strangers = [folder / "note.txt", folder.parent / "1.pb.gz", folder / "02.pb.gz"]
    for path in left + strangers:
        path.write_bytes(b"hello")
    server.restart()
    assert not [path for path in left if path.exists()]
    named = sorted(line["file"] for line in server.events("unknown file ignored"))
    assert [name.endswith(str(path)) for name, path in zip(named, sorted(strangers), strict=True)] == [
        True
    ] * 3
    assert state(server) == ([1], 1, False)
