"""Rules of services: they change what is served, and not what is stored."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pprof_merge
import pytest
from pgo_collector.errors import RulesUnreadable
from pgo_collector.merges.rules_folder import RulesFolder
from pprof_merge.analysis import Rules
from pprof_merge.analysis.rules import apply_rules, parse_rules
from pprof_merge.formats import FORMATS

from tests.faults.stacks import profile_of, tally
from tests.server import Server

pytestmark = pytest.mark.any_store
RULES = b"# what the runtime does by itself\ndrop runtime.gcBgMarkWorker\nnoinline runtime.mallocgc\n"


@pytest.fixture
def rules(stopped: Server) -> Path:
    """Return the rules file of the default service, which doesn't exist yet."""
    folder = stopped.home / "rules"
    folder.mkdir()
    stopped.environment["PGOF_RULES_DIR"] = str(folder)
    return folder / "default.rules"


@pytest.fixture
def server(stopped: Server, rules: Path) -> Server:
    """Start a collector with an empty folder of rules."""
    assert rules.parent.is_dir()
    stopped.start()
    return stopped


def test_the_merge_is_by_the_rules_and_what_is_stored_is_not(
    server: Server, rules: Path, go_profiles: list[bytes]
) -> None:
    for profile in go_profiles:
        server.submit(profile)
    plain = server.merge()
    rules.write_bytes(RULES)
    whole = pprof_merge.merge(map(pprof_merge.decode, go_profiles))
    expected = pprof_merge.encode(apply_rules(whole, parse_rules(RULES)))
    assert expected != pprof_merge.encode(whole)
    for answer in (server.merge(), server.merge("POST"), server.combine()):
        assert answer.status_code == 200
        assert pprof_merge.inflate(answer.content) == expected
        assert answer.headers["ETag"] == f'"{hashlib.sha256(answer.content).hexdigest()}-pprof"'
        assert answer.headers["Content-Disposition"] == 'attachment; filename="default.pb.gz"'
    (blob,) = server.blobs()
    assert blob.read_bytes().startswith(plain.content)  # the blob's seal comes after it
    rules.unlink()
    after = server.merge()
    assert (after.content, after.headers["ETag"]) == (plain.content, plain.headers["ETag"])


def test_a_change_of_rules_is_a_change_of_what_is_served(server: Server, rules: Path) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    seen = []
    for text in (b"", b"drop a\n", b"noinline a\n", b"drop b\n"):
        rules.write_bytes(text)
        seen.append(server.merge().headers["ETag"])
        assert server.merge(If_None_Match=seen[-1]).status_code == 304
    assert len({*seen}) == 4
    assert tally(server.merge().content) == {"a": 1}


def test_comments_change_nothing(server: Server, rules: Path) -> None:
    server.submit(profile_of("a"))
    rules.write_bytes(b"noinline a\n")
    etag = server.merge().headers["ETag"]
    rules.write_bytes(b"# as is told in the runbook\n\nnoinline   a")
    assert server.merge(If_None_Match=etag).status_code == 304
    assert len(server.events("merge made")) == 1


def test_rules_go_before_the_format(server: Server, rules: Path) -> None:
    for name in ("a", "b"):
        server.submit(profile_of(name))
    rules.write_bytes(b"drop a\nnoinline b\n")
    answer = server.merge(format_="folded")
    assert answer.content == b"DO NOT INLINE: b 10000000\n"
    assert answer.headers["ETag"].endswith('-folded"')


@pytest.mark.parametrize("name", ["go", "llvm"])
def test_formats_that_need_no_whole_stacks_are_of_what_rules_leave_of_them(
    name: str, server: Server, rules: Path, go_profiles: list[bytes]
) -> None:
    for profile in go_profiles:
        server.submit(profile)
    rules.write_bytes(RULES)
    whole = pprof_merge.merge(map(pprof_merge.decode, go_profiles))
    expected = FORMATS[name].write(apply_rules(whole, parse_rules(RULES)))
    assert expected != FORMATS[name].write(whole)
    assert server.merge(format_=name).content == expected


def test_the_file_is_the_services_own(stopped: Server, rules: Path) -> None:
    rules.write_bytes(b"drop a\n")
    rules.with_name("shop.rules").write_bytes(b"drop b\n")
    stopped.environment["PGOF_DEFAULT_SERVICE"] = "shop"
    stopped.start()
    for name in ("a", "b"):
        stopped.submit(profile_of(name))
    assert tally(stopped.merge().content) == {"a": 1}


def test_a_file_is_read_when_it_has_changed_and_while_it_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = RulesFolder(tmp_path), tmp_path / "shop.rules"
    read_rules = RulesFolder.read
    read: list[Path] = []

    def noting(self: RulesFolder, path: Path) -> Rules:
        read.append(path)
        return read_rules(self, path)

    monkeypatch.setattr(RulesFolder, "read", noting)
    file.write_bytes(b"drop a\n")
    for _ in range(2):
        assert folder.of("shop").drop == ("a",)
    assert len(read) == 2, "the next change might not show in the times of a file that is so new"
    changed_nanos = file.stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: changed_nanos + 60 * 10**9)
    for _ in range(3):
        assert folder.of("shop").drop == ("a",)
    assert len(read) == 3
    file.write_bytes(b"drop b\n")
    assert folder.of("shop").drop == ("b",)
    file.unlink()
    assert folder.of("shop").drop == ()
    file.write_bytes(b"drop\n")
    for _ in range(2):
        with pytest.raises(RulesUnreadable, match="line 1"):
            folder.of("shop")


BROKEN = b"noinline a\ninline b\n"
REASON = "line 2: unknown rule 'inline'; a rule begins with drop or noinline"


def test_broken_rules_are_named_and_cost_no_profile(server: Server, rules: Path) -> None:
    for name in ("a", "b"):
        assert server.submit(profile_of(name)).status_code == 204
    rules.write_bytes(BROKEN)
    for answer in (server.merge(), server.merge(format_="json"), server.combine()):
        assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
        assert answer.json()["detail"] == f"rules file default.rules: {REASON}"
    assert len(server.blobs()) == 2, "it was combined, and the client told that it wasn't"
    assert server.submit(profile_of("c")).status_code == 204
    logged = server.wait_for_log("rules unreadable")
    assert (logged["file"], logged["reason"]) == (str(rules), REASON)
    rules.write_bytes(b"drop a\n")
    assert tally(server.merge().content) == {"b": 1, "c": 1}


def test_a_start_says_which_rules_there_are(stopped: Server, rules: Path) -> None:
    rules.write_bytes(BROKEN)
    rules.with_name("shop.rules").write_bytes(RULES)
    rules.with_name("README").write_bytes(b"no rules")
    stopped.start()
    assert [(line["file"], line["count"]) for line in stopped.events("rules read")] == [
        (str(rules.with_name("shop.rules")), 2)
    ]
    assert [line["reason"] for line in stopped.events("rules unreadable")] == [REASON]
    assert stopped.submit(profile_of("a")).status_code == 204


def test_a_folder_in_the_place_of_the_file_is_named(server: Server, rules: Path) -> None:
    server.submit(profile_of("a"))
    rules.mkdir()
    answer = server.merge()
    assert answer.status_code == 500
    assert answer.json()["detail"] == f"rules file default.rules: {os.strerror(21)}"
