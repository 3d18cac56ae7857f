"""Test `pgo-agent submit` as a command, with a real HTTP server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.forked import run_agent
from tests.agent.scripted_server import KEY, ScriptedServer, problem
from tests.terminal import on_terminal

COMMAND = str(Path(sys.executable).with_name("pgo-agent"))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"cpu{number}.pb.gz" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(f"profile {number}".encode())
    (tmp_path / "key").write_text(f"{KEY}\nanother\n")
    return files


def submit(server: ScriptedServer, *arguments: str | Path, key: Path) -> subprocess.CompletedProcess[str]:
    return run_agent(["submit", "--url", server.url, "--key-file", key, *arguments])


def test_files_are_sent_in_order_with_what_is_said_of_them(server: ScriptedServer, files: list[Path]) -> None:
    said = ["--service", "shop", "--label", "region=eu", "--label", "version=2", "--type", "cpu"]
    done = submit(server, *said, *files, key=files[0].with_name("key"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [seen.profile for seen in server.seen] == [b"profile 0", b"profile 1", b"profile 2"]
    assert {seen.path for seen in server.seen} == {
        "/v1/submit?service=shop&labels=region%3Deu%2Cversion%3D2&type=cpu"
    }
    assert {seen.headers["Authorization"] for seen in server.seen} == {f"Bearer {KEY}"}


def test_a_refused_file_is_named_and_the_rest_is_sent(server: ScriptedServer, files: list[Path]) -> None:
    server.answers = [problem(400, "not a profile")]
    done = submit(server, *files, "missing", key=files[0].with_name("key"))
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == f"pgo-agent: {files[0]}: the collector refused the profile: 400 not a profile"
    assert "missing" in second
    assert len(server.seen) == 3


def test_json_says_what_became_of_each(server: ScriptedServer, files: list[Path]) -> None:
    server.answers = [problem(413, "too large")]
    done = submit(server, "--json", *files[:2], key=files[0].with_name("key"))
    assert (done.returncode, done.stderr) == (2, "")
    assert json.loads(done.stdout) == [
        {"file": str(files[0]), "error": "the collector refused the profile: 413 too large"},
        {"file": str(files[1]), "error": None},
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--label", "region"], "not NAME=VALUE: 'region'"),
        (["--label", "=b"], "a label has no name"),
        (["--url", "collector:8080"], "not an http or https URL"),
        (["--key-file", "missing"], "missing"),
    ],
)
def test_what_cannot_be_sent_is_told_at_once(
    server: ScriptedServer, files: list[Path], arguments: list[str], reason: str
) -> None:
    done = submit(server, *files, *arguments, key=files[0].with_name("key"))
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert server.seen == []


def test_a_person_sees_how_far_it_is(server: ScriptedServer, files: list[Path]) -> None:
    status, shown = on_terminal(
        COMMAND, "submit", "--url", server.url, "--key-file", files[0].with_name("key"), *files
    )
    assert status == 0
    assert b"/3 [" in shown
