"""`pgo-collector check` names what keeps a server from working, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pgo_collector.checks.configuration import check_configuration
from pgo_collector.settings import Settings

from tests.agent.backends.test_backends import AS_NOBODY, needs_root
from tests.faults.mounts import read_only, small_disk
from tests.faults.stacks import profile_of
from tests.server import COMMAND, Server

# They look into the file, or copy it.
pytestmark = [pytest.mark.sqlite, pytest.mark.folder]

Found = dict[str, tuple[str, str, str]]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - the specification's example
PARTS = {
    *(
        "settings",
        "submit keys",
        "merge keys",
        "sessions",
        "webhook",
        "rules",
        "functions",
        "binaries",
        "debuginfod",
        "bulk",
    ),
    *("owner", "privacy", "data folder", "disk", "version", "catalog"),
}


@pytest.fixture
def stopped(stopped: Server) -> Server:
    """A stopped collector with keys that only their owner can read, and a rules folder of its own."""
    for file in (stopped.submit_keys, stopped.merge_keys):
        file.chmod(0o600)
    stopped.environment["PGOF_RULES_DIR"] = str(stopped.home / "rules")
    return stopped


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with two profiles."""
    with Server(tmp_path_factory.mktemp("template")) as server:
        for name in "ab":
            assert server.submit(profile_of(name)).status_code == 204
        server.stop()
    return server.data


@pytest.fixture
def filled(stopped: Server, template: Path) -> Server:
    """A stopped collector with a copy of that data folder."""
    shutil.copytree(template, stopped.data)
    return stopped


def checked(server: Server) -> Found:
    """Return state, detail and fix of each part; of several findings the worst."""
    finished = server.run("check", "--json")
    assert not finished.stderr
    said: dict[str, Any] = json.loads(finished.stdout)
    states = [of["state"] for of in said["findings"]]
    assert said["works"] == ("fails" not in states)
    assert finished.returncode == (0 if said["works"] else 1)
    order = ["ok", "warning", "fails"]
    worst = sorted(said["findings"], key=lambda of: order.index(of["state"]))
    assert all(of["fix"] for of in worst if of["state"] != "ok")
    return {of["part"]: (of["state"], of["detail"], of["fix"]) for of in worst}


def states(server: Server) -> dict[str, str]:
    """Return the states of the parts that aren't ok."""
    return {part: state for part, (state, *_) in checked(server).items() if state != "ok"}


def test_all_is_well_before_the_first_start_and_after_it(stopped: Server) -> None:
    assert states(stopped) == {}
    assert not stopped.data.exists()
    stopped.start()
    stopped.submit(profile_of("a"))
    stopped.stop()
    found = checked(stopped)
    assert {*found} == PARTS
    assert {state for state, *_ in found.values()} == {"ok"}
    assert found["catalog"][1] == "1 profiles, and all their blobs"


def test_a_person_reads_it_line_by_line(filled: Server) -> None:
    filled.merge_keys.unlink()
    finished = filled.run("check")
    assert finished.returncode == 1
    lines = finished.stdout.splitlines()
    assert {line[:12].strip() for line in lines} == PARTS
    (line,) = (line for line in lines if " fails " in line)
    assert line.startswith("merge keys   fails    ")
    assert f"pgo-collector keys new {filled.merge_keys}" in line


def test_it_checks_a_running_server_and_changes_nothing(filled: Server) -> None:
    filled.start()
    names = [f"stack {number}" for number in range(60)]
    with ThreadPoolExecutor(4) as clients:
        answers = clients.map(filled.submit, map(profile_of, names))
        for _ in range(3):
            assert states(filled) == {}
        assert {answer.status_code for answer in answers} == {204}
    before = tree(filled.data)
    assert checked(filled)["catalog"][1] == "62 profiles, and all their blobs"
    assert tree(filled.data) == before


def tree(folder: Path) -> dict[Path, bytes]:
    """Return all files but SQLite's -shm, in which it notes its readers."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {path: path.read_bytes() for path in files}


Break = Callable[[Server], object]


def setting(**variables: str) -> Break:
    return lambda server: server.environment.update(variables)


def submit_keys(text: str, mode: int = 0o600) -> Break:
    def write(server: Server) -> None:
        server.submit_keys.write_text(text)
        server.submit_keys.chmod(mode)

    return write


def webhook(url: str, secret: str | None) -> Break:
    def write(server: Server) -> None:
        file = server.home / "webhook_secret"
        server.environment |= {"PGOF_WEBHOOK_URL": url, "PGOF_WEBHOOK_SECRET_FILE": str(file)}
        if secret is not None:
            file.write_text(secret)

    return write


def session_secret(text: str | None, mode: int = 0o600) -> Break:
    def write(server: Server) -> None:
        file = server.home / "session_secret"
        server.environment["PGOF_SESSION_SECRET_FILE"] = str(file)
        if text is not None:
            file.write_text(text)
            file.chmod(mode)

    return write


def rules(text: str) -> Break:
    def write(server: Server) -> None:
        folder = server.home / "rules"
        folder.mkdir()
        (folder / "shop.rules").write_text(text)

    return write


def catalog(statement: str) -> Break:
    def execute(server: Server) -> None:
        with closing(sqlite3.connect(server.data / "catalog.sqlite3")) as connection, connection:
            connection.execute(statement)

    return execute


def lose_catalog(server: Server) -> None:
    (server.data / "catalog.sqlite3").unlink()


def damage_catalog(server: Server) -> None:
    (server.data / "catalog.sqlite3").write_bytes(b"no database " * 1000)


def lose_blob(server: Server) -> None:
    server.blobs()[0].unlink()


def add_blob(server: Server) -> None:
    blob = server.blobs()[0]
    another = blob.with_name(f"17{blob.name}")
    shutil.copy(blob, another)
    an_hour_ago = time.time() - 3600
    os.utime(another, (an_hour_ago, an_hour_ago))  # so old that a submit must have been counted


def file_for_folder(server: Server) -> None:
    shutil.rmtree(server.data)
    server.data.write_text("a file")


def test_a_server_logs_what_a_check_finds(stopped: Server) -> None:
    """It serves all the same, but where a variable is no setting."""
    stopped.merge_keys.chmod(0o644)
    stopped.environment |= {"PGOF_KEEP_DAY": "5", "PGOF_UNKNOWN_SETTINGS": "warn"}
    stopped.start()
    stopped.wait_for_log("check found", 2)
    lines = stopped.events("check found")
    found = {line["part"]: (line["level"], line["detail"], line["fix"]) for line in lines}
    level, detail, fix = found["merge keys"]
    assert (level, fix.startswith(f"chmod o= {stopped.merge_keys}")) == ("warning", True)
    assert detail == f"{stopped.merge_keys} has keys that every user of this machine can read"
    assert found["settings"] == ("warning", "PGOF_KEEP_DAY isn't a setting", "did you mean PGOF_KEEP_DAYS?")
    assert "submit keys" not in found
    assert stopped.stop() == 0


def test_a_server_does_not_start_with_a_variable_that_is_no_setting(stopped: Server) -> None:
    environment = stopped.environment | {"PGOF_KEEP_DAY": "5"}
    finished = subprocess.run(
        [COMMAND, "serve"], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 2
    assert "PGOF_KEEP_DAY isn't a setting: did you mean PGOF_KEEP_DAYS?" in finished.stderr


DIGEST = f"sha256:{'ab' * 32}\n"
BREAKS: dict[str, tuple[Break, dict[str, str], str]] = {
    "misspelled": (setting(PGOF_KEEP_DAY="3"), {"settings": "fails"}, "PGOF_KEEP_DAYS?"),
    "misspelled, and allowed": (
        setting(PGOF_KEEP_DAY="3", PGOF_UNKNOWN_SETTINGS="warn"),
        {"settings": "warning"},
        "PGOF_KEEP_DAYS?",
    ),
    "not a number": (setting(PGOF_WORKERS="many"), {"settings": "fails"}, "PGOF_WORKERS"),
    "no keys file": (lambda server: server.submit_keys.unlink(), {"submit keys": "fails"}, "keys new"),
    "no key": (submit_keys("\n"), {"submit keys": "warning"}, "every request is refused"),
    "malformed": (submit_keys("key name=a b\n"), {"submit keys": "fails"}, "line 1"),
    "blanks": (submit_keys("key nam=a\n"), {"submit keys": "warning"}, "misspelled"),
    "readable by all": (submit_keys("key\n", 0o644), {"submit keys": "warning"}, "chmod"),
    "digests for all": (submit_keys(DIGEST, 0o644), {}, ""),
    "metrics keys": (setting(PGOF_METRICS_AUTH_KEYS_FILE="/x"), {"metrics keys": "fails"}, "/x"),
    "no session secret": (session_secret(None), {"sessions": "fails"}, "openssl rand"),
    "a short session secret": (session_secret("short"), {"sessions": "fails"}, "5 bytes"),
    "a public session secret": (session_secret("s" * 32, 0o644), {"sessions": "warning"}, "chmod o="),
    "session secret": (session_secret("s" * 32), {}, ""),
    "no secret": (webhook("https://example.net/", None), {"webhook": "fails"}, "webhook_secret"),
    "a bad secret": (webhook("https://example.net/", "secret"), {"webhook": "fails"}, "line 1"),
    "in the clear": (webhook("http://example.net/?key=x", SECRET), {"webhook": "warning"}, "https"),
    "webhook": (webhook("https://example.net/", SECRET), {}, ""),
    "no cluster": (setting(PGOF_BULK="dask://127.0.0.1:1"), {"bulk": "warning"}, "can't be reached"),
    "rules": (rules("drop main.busy\n"), {}, ""),
    "broken rules": (rules("what is this\n"), {"rules": "fails"}, "shop.rules"),
    "too large": (setting(PGOF_KEEP_MEGABYTES="1e12"), {"disk": "warning"}, "PGOF_KEEP"),
    "newer": (catalog("UPDATE catalog_version SET version_num='99.0'"), {"version": "fails"}, "newer"),
    "older": (catalog("UPDATE catalog_version SET version_num='1.0'"), {"version": "warning"}, "older"),
    "lost catalog": (lose_catalog, {"catalog": "warning"}, "made from the blobs"),
    "damaged catalog": (damage_catalog, {"catalog": "fails"}, "reindex"),
    "lost blob": (lose_blob, {"catalog": "fails"}, "1 blobs are missing"),
    "another blob": (add_blob, {"catalog": "warning"}, "1 blobs aren't in it"),
    "no folder": (file_for_folder, {"data folder": "fails"}, "let PGOF_DIRECTORY name a folder"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_faults_are_named(filled: Server, name: str) -> None:
    broken, expected, words = BREAKS[name]
    broken(filled)
    found = checked(filled)
    assert {part: state for part, (state, *_) in found.items() if state != "ok"} == expected
    for part in expected:
        assert words in " ".join(found[part])
        assert "?key=x" not in " ".join(found[part])


def test_several_collectors_need_one_secret_of_sessions() -> None:
    shared = Settings(catalog="postgresql://db/pgo", storage="s3://profiles/x")
    found = {finding.part: finding for finding in check_configuration(shared)}
    assert found["sessions"].state == "warning"
    assert "PGOF_SESSION_SECRET_FILE" in found["sessions"].fix


def test_a_folder_that_is_read_only(filled: Server) -> None:
    with read_only(filled.data):
        assert checked(filled)["data folder"][:2] == (
            "fails",
            f"{filled.data / 'incoming'}: Read-only file system",
        )


def test_a_part_of_the_data_folder_on_another_disk(filled: Server) -> None:
    shutil.rmtree(filled.data / "merged")
    with small_disk(filled.data / "merged", "4m"):
        state, detail, _ = checked(filled)["data folder"]
    assert (state, detail.split(": ")[-1]) == ("fails", "merged")


def test_a_full_disk(stopped: Server) -> None:
    with small_disk(stopped.home / "disk", "32m") as disk:
        stopped.environment["PGOF_DIRECTORY"] = str(disk / "data")
        assert states(stopped) == {"disk": "warning"}
        (disk / "filler").write_bytes(bytes(24 << 20))
        assert states(stopped) == {"disk": "fails"}


def test_a_folder_on_a_volume_whose_root_is_open(filled: Server) -> None:
    filled.data.chmod(0o2775)  # as the root of a volume with fsGroup
    for path in filled.data.iterdir():
        path.chmod(0o700)
    assert states(filled) == {}
    (filled.data / "catalog.sqlite3").chmod(0o640)
    state, detail, fix = checked(filled)["privacy"]
    assert (state, "(mode 2775), and in it catalog.sqlite3" in detail) == ("warning", True)
    assert "chmod go=" in fix


@needs_root
def test_a_user_other_than_the_owner_is_warned(filled: Server) -> None:
    os.chown(filled.data, 65534, 65534)
    state, detail, fix = checked(filled)["owner"]
    assert state == "warning"
    assert "(65534)" in detail
    assert "setpriv --reuid 65534" in fix


@needs_root
def test_a_user_without_rights_is_told(filled: Server) -> None:
    finished = subprocess.run(
        [*AS_NOBODY, COMMAND, "check", "--json"],
        env=filled.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stderr
    findings = {of["part"]: of for of in json.loads(finished.stdout)["findings"]}
    assert findings["data folder"]["state"] == "fails"
    assert "Permission denied" in findings["data folder"]["detail"]
