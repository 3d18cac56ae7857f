from __future__ import annotations

import hmac
import stat
import time

import pytest
from pgo_collector.http.keys import KeySet, fingerprint

from tests.faults.stacks import profile_of
from tests.server import Server


def wait_for_status(server: Server, key: str, status: int) -> None:
    deadline = time.monotonic() + 10
    while server.submit(profile_of("a"), key).status_code != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_key_a_line_trimmed_and_blank_lines_dropped() -> None:
    keys = KeySet.parse(b"  first \r\n\n\t\nsecond")
    assert len(keys.digests) == 2
    assert keys.match(b"first") == fingerprint(b"first")
    assert keys.match(b"second")
    assert keys.match(b"") is None
    assert keys.match(b"  first ") is None


def test_every_key_is_compared_wherever_the_match_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = hmac.compare_digest
    compared: list[bytes] = []

    def counting(known: bytes, offered: bytes) -> bool:
        compared.append(known)
        return compare(known, offered)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    keys = KeySet.parse(b"a\nb\nc")
    for key in (b"a", b"b", b"c", b"none"):
        compared.clear()
        assert (keys.match(key) is not None) == (key != b"none")
        assert compared == list(keys.digests)


def test_a_key_set_holds_no_key() -> None:
    assert "secret" not in repr(KeySet.parse(b"secret"))


@pytest.mark.parametrize("kind", ["submit", "merge"])
def test_a_missing_keys_file_ends_the_process_and_is_named(stopped: Server, kind: str) -> None:
    path = stopped.home / f"{kind}_keys"
    path.unlink()
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert str(path) in finished.stderr
    assert "Traceback" not in finished.stderr


def test_with_empty_keys_files_it_starts_and_refuses_all(stopped: Server) -> None:
    stopped.submit_keys.write_text("")
    stopped.merge_keys.write_text("\n \n")
    stopped.start()
    assert stopped.submit(profile_of("a")).status_code == 403
    assert stopped.merge().status_code == 403


def test_keys_rotate_without_a_restart(server: Server) -> None:
    assert server.submit(profile_of("a"), "new").status_code == 403
    server.submit_keys.write_text(f"{Server.submit_key}\nnew\n")
    wait_for_status(server, "new", 204)
    server.submit_keys.write_text("new\n")
    wait_for_status(server, Server.submit_key, 403)
    assert server.submit(profile_of("a"), "new").status_code == 204


def test_a_keys_file_that_vanishes_leaves_the_last_keys(server: Server) -> None:
    server.submit_keys.unlink()
    assert server.wait_for_log("keys unreadable, the last ones stay")["file"] == str(server.submit_keys)
    assert server.submit(profile_of("a")).status_code == 204
    server.submit_keys.write_text("new\n")
    wait_for_status(server, "new", 204)
    assert server.submit(profile_of("a")).status_code == 403


def test_keys_new_prints_a_key_and_adds_it_to_a_private_file(stopped: Server) -> None:
    path = stopped.home / "new_keys"
    first = stopped.run("keys", "new", str(path))
    assert first.returncode == 0
    assert path.read_text() == first.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("by hand, without a line end")
    second = stopped.run("keys", "new", str(path))
    assert path.read_text() == f"by hand, without a line end\n{second.stdout}"
    assert first.stdout != second.stdout
    assert len(second.stdout.strip()) >= 43
    assert fingerprint(second.stdout.strip().encode()) in second.stderr


def test_keys_new_without_a_file_only_prints(stopped: Server) -> None:
    before = sorted(stopped.home.iterdir())
    assert stopped.run("keys", "new").stdout.strip()
    assert sorted(stopped.home.iterdir()) == before
