"""`pgo-agent binary`: what it sends, and what it says of a program that the collector couldn't know."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack
from urllib.parse import urlsplit

import pytest

from tests.agent.forked import run_agent
from tests.agent.scripted_server import KEY, ScriptedServer


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key = tmp_path / "key"
    key.write_text(KEY)
    return key


def program(file: Path, build_id: bytes) -> Path:
    """Write an ELF file for x86-64 of nothing but notes; return its path."""
    note = pack("<III4s", 4, len(build_id), 3, b"GNU\0") + build_id if build_id else b""
    head = b"\x7fELF\2\1\1" + bytes(9) + pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    file.write_bytes(head + pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4) + note)
    return file


def test_programs_are_sent_as_they_are(server: ScriptedServer, key: Path, tmp_path: Path) -> None:
    files = [program(tmp_path / name, name.encode()) for name in ("shop", "bank")]
    sending: list[str | Path] = ["binary", "--url", server.url, "--key-file", key, "--service", "shop"]
    done = run_agent([*sending, "--json", *files])
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [
        {"file": str(file), "build_id": file.name.encode().hex()} for file in files
    ]
    assert [seen.body for seen in server.seen] == [file.read_bytes() for file in files]
    assert {urlsplit(seen.path)[2:4] for seen in server.seen} == {("/v1/binaries", "service=shop")}
    assert {seen.headers["Authorization"] for seen in server.seen} == {f"Bearer {KEY}"}


def test_nothing_is_sent_if_one_has_no_build_id(server: ScriptedServer, key: Path, tmp_path: Path) -> None:
    files = [program(tmp_path / "shop", b"shop"), program(tmp_path / "bare", b"")]
    done = run_agent(["binary", "--url", server.url, "--key-file", key, *files])
    assert done.returncode == 2
    assert done.stderr == f"pgo-agent: {files[1]}: it has no build id: link it with -Wl,--build-id\n"
    assert server.seen == []
