from __future__ import annotations

import hashlib
import hmac
import stat
import time

import pytest
from pgo_collector.http.keys import KeySet

from tests.faults.stacks import profile_of
from tests.server import Server, fingerprint

pytestmark = pytest.mark.any_store


def wait_for_status(server: Server, key: str, status: int) -> None:
    deadline = time.monotonic() + 60
    while server.submit(profile_of("a"), key).status_code != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_key_a_line_trimmed_and_blank_lines_dropped() -> None:
    keys = KeySet.parse(b"  first \r\n\n\t\nsecond")
    assert [key.fingerprint for key in keys.keys] == [fingerprint("first"), fingerprint("second")]
    assert keys.match(b"first") == keys.keys[0]
    assert keys.match(b"second") == keys.keys[1]
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
        assert compared == [known.digest for known in keys.keys]


def test_a_key_set_holds_no_key() -> None:
    text = b"secret\nsecret name=a\nsecret key\nsecret secret name=a"
    assert "secret" not in repr(KeySet.parse(text))


def test_a_key_that_is_there_twice_has_to_be_the_same_twice() -> None:
    digest = hashlib.sha256(b"a").hexdigest()
    text = f"a service=x\n\na service=x\nsha256:{digest} service=x\na\na name=n service=x\nb"
    keys = KeySet.parse(text.encode())
    assert len(keys.keys) == 2
    assert keys.malformed == dict.fromkeys((5, 6), "the key is in a line above, with other fields")
    found = keys.match(b"a")
    assert found is not None
    assert str(found.scope) == "x"


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


def test_a_key_of_the_other_kind_is_told_from_a_wrong_one(server: Server) -> None:
    merge, submit = server.merge(key=server.submit_key), server.submit(profile_of("a"), server.merge_key)
    for answer, kind, takes in ((merge, "submit", "merge"), (submit, "merge", "submit")):
        assert answer.status_code == 403
        assert f"this is a {kind} key, and the route takes {takes} keys" in answer.json()["detail"]
    assert "no key that this route takes" in server.merge(key="wrong").json()["detail"]
    wrong = server.client.get("/v1/merge", auth=("anyone", "wrong"))
    assert "the key that was sent is no key" in wrong.json()["detail"]
    assert "no key was sent" in server.client.get("/v1/merge").json()["detail"]


def test_keys_rotate_without_a_restart(server: Server) -> None:
    assert server.submit(profile_of("a"), "new").status_code == 403
    server.submit_keys.write_text(f"{Server.submit_key}\nnew\n")
    wait_for_status(server, "new", 204)
    server.submit_keys.write_text("new\n")
    wait_for_status(server, Server.submit_key, 403)
    assert server.submit(profile_of("a"), "new").status_code == 204


def test_a_keys_file_that_vanishes_leaves_the_last_keys(server: Server) -> None:
    server.submit_keys.unlink()
    assert server.wait_for_log("keys unreadable")["file"] == str(server.submit_keys)
    assert server.submit(profile_of("a")).status_code == 204
    server.submit_keys.write_text("new\n")
    wait_for_status(server, "new", 204)
    assert server.submit(profile_of("a")).status_code == 403


def test_a_client_may_send_the_whole_line_of_its_key(stopped: Server) -> None:
    """`$(head -n 1 FILE)` sends all of it, and editors write a byte order mark before the first."""
    digest = hashlib.sha256(b"open name=x").hexdigest()
    stopped.submit_keys.write_text(
        f"first name=ci service=*\nsha256:{digest} name=odd\n", encoding="utf-8-sig"
    )
    stopped.start()
    for key in ("first", "first name=ci service=*", "open name=x"):
        assert stopped.submit(profile_of("a"), key).status_code == 204
    for key in ("open", "other name=ci", "first ci", "name=ci"):
        assert stopped.submit(profile_of("a"), key).status_code == 403


NO_KEY = "there is no key before the fields"
NOT_A_FIELD = "word 2 is neither name= nor service="
MALFORMED = "key-of-old servcie=shop name=ci\nanother\nname=ci service=shop\n"


@pytest.mark.parametrize("kind", ["submit", "merge"])
def test_a_start_with_malformed_lines_names_file_and_lines(stopped: Server, kind: str) -> None:
    path = stopped.home / f"{kind}_keys"
    path.write_text(MALFORMED)
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert finished.stderr.endswith(f"keys file {path}: line 1: {NOT_A_FIELD}; line 3: {NO_KEY}\n")
    assert "key-of-old" not in finished.stderr


def test_lines_that_become_malformed_are_skipped_and_logged_without_the_key(server: Server) -> None:
    server.submit_keys.write_text(MALFORMED)
    wait_for_status(server, "another", 204)
    assert server.submit(profile_of("a"), "key-of-old").status_code == 403
    assert server.submit(profile_of("a")).status_code == 403
    logged = server.events("key malformed")
    assert [(line["file"], line["line"], line["reason"]) for line in logged] == [
        (str(server.submit_keys), 1, NOT_A_FIELD),
        (str(server.submit_keys), 3, NO_KEY),
    ]
    assert server.wait_for_log("keys read")["count"] == 1
    assert "key-of-old" not in repr(server.log)


def test_a_slip_in_the_only_line_locks_nobody_out(server: Server) -> None:
    server.submit_keys.write_text(f"{Server.submit_key} service=\n")
    assert server.wait_for_log("keys not replaced")["file"] == str(server.submit_keys)
    assert server.submit(profile_of("a")).status_code == 204
    server.submit_keys.write_text("\n")
    wait_for_status(server, Server.submit_key, 403)


def test_a_key_with_blanks_is_taken_and_pointed_out(stopped: Server) -> None:
    stopped.submit_keys.write_text("\nopen sesame servcie=shop\n")
    stopped.start()
    assert stopped.submit(profile_of("a"), "open sesame servcie=shop").status_code == 204
    assert stopped.submit(profile_of("a"), "open").status_code == 403
    assert stopped.wait_for_log("key has blanks")["line"] == 2
    stopped.submit_keys.write_text("new key\n")
    wait_for_status(stopped, "new key", 204)
    assert stopped.wait_for_log("key has blanks", 2)["line"] == 1


def test_a_key_can_be_given_by_its_digest(stopped: Server) -> None:
    digest = hashlib.sha256(Server.submit_key.encode()).hexdigest()
    stopped.submit_keys.write_text(f"sha256:{digest} name=ci\n")
    stopped.start()
    assert stopped.submit(profile_of("a")).status_code == 204
    assert stopped.submit(profile_of("a"), f"sha256:{digest}").status_code == 403
    assert stopped.submit(profile_of("a"), digest).status_code == 403
    assert stopped.wait_for_log("request")["key"] == fingerprint(Server.submit_key)


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
    assert fingerprint(second.stdout.strip()) in second.stderr


def test_keys_new_without_a_file_only_prints(stopped: Server) -> None:
    before = sorted(stopped.home.iterdir())
    assert stopped.run("keys", "new").stdout.strip()
    assert sorted(stopped.home.iterdir()) == before


@pytest.mark.parametrize("digest", [False, True], ids=["key", "digest"])
def test_keys_new_writes_the_fields_that_it_is_told(stopped: Server, digest: bool) -> None:
    options = ["--name", "ci", "--service", "shop,pay-*"] + ["--digest"] * digest
    key = stopped.run("keys", "new", *options, str(stopped.submit_keys)).stdout.strip()
    written = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" if digest else key
    line = f"{written} name=ci service=shop,pay-*"
    assert stopped.submit_keys.read_text() == f"{Server.submit_key}\n{line}\n"
    stopped.environment["PGOF_DEFAULT_SERVICE"] = "pay-eu"
    stopped.start()
    assert stopped.submit(profile_of("a"), key).status_code == 204


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "a b"], "name= takes"),
        (["--name", ""], "name= takes"),
        (["--service", "shop,"], "service= takes"),
        (["--service", "shop name=x"], "service= takes"),
    ],
)
def test_keys_new_makes_no_line_that_a_start_would_refuse(
    stopped: Server, arguments: list[str], said: str
) -> None:
    path = stopped.home / "new_keys"
    finished = stopped.run("keys", "new", *arguments, str(path))
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith(f"pgo-collector: {said}")
    assert not path.exists()


@pytest.mark.parametrize("options", [["--name", "ci"], ["--service", "shop"], ["--digest"]])
def test_keys_new_needs_a_file_for_what_only_a_file_tells(stopped: Server, options: list[str]) -> None:
    finished = stopped.run("keys", "new", *options)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert "need a keys file" in finished.stderr


def test_keys_new_says_why_a_file_cannot_be_written(stopped: Server) -> None:
    path = stopped.home / "none" / "keys"
    finished = stopped.run("keys", "new", str(path))
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == f"pgo-collector: keys file {path}: No such file or directory\n"
