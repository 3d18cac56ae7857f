"""The example of a receiver, as a reader meets it: the page's commands, and the line for each profile."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from tests.interop.listening import free_port, wait_until_answers
from tests.server import Server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hooks.md").read_text()
SCRIPT = ROOT / "docs" / "hooks" / "timeline.py"
PROFILES = sorted((ROOT / "tests" / "testdata" / "profiles").glob("apisvc-v1-*.pb.gz"))


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """As the command of the page makes it."""
    (command,) = re.findall(r"^echo .* > \.dev/webhook_secret$", PAGE, flags=re.MULTILINE)
    (tmp_path / ".dev").mkdir()
    subprocess.run(["bash", "-eu", "-c", command], cwd=tmp_path, check=True)
    return tmp_path / ".dev" / "webhook_secret"


@contextmanager
def receiving(server: Server, port: int, secret_file: Path) -> Iterator[IO[bytes]]:
    """Yield the lines that the receiver prints, until the block ends."""
    options = [
        *("--port", str(port), "--collector", server.base_url),
        *("--key-file", str(server.merge_keys), "--secret-file", str(secret_file)),
    ]
    log = secret_file.with_name("log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, SCRIPT, "runtime.asyncPreempt", *options], stdout=subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    watchdog = threading.Timer(300, process.kill)
    watchdog.start()
    try:
        wait_until_answers(port, process, log)
        yield process.stdout
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_receiver_prints_what_the_page_says(tmp_path: Path, secret_file: Path) -> None:
    port = free_port()
    settings = {
        "PGOF_WEBHOOK_URL": f"http://127.0.0.1:{port}/",
        "PGOF_WEBHOOK_SECRET_FILE": str(secret_file),
    }
    query = {"service": "apisvc", "labels": "version=v1"}
    printed = []
    with (
        Server(tmp_path / "server", settings) as server,
        receiving(server, port, secret_file) as lines,
    ):
        for profile in PROFILES:
            assert server.submit(profile.read_bytes(), query=query).status_code == 204
            printed.append(lines.readline().decode().strip())
    assert printed == re.findall(r"^\S+Z apisvc .*$", PAGE, flags=re.MULTILINE)


def test_the_receiver_refuses_what_nobody_signed(tmp_path: Path, secret_file: Path) -> None:
    port = free_port()
    headers = {"webhook-id": "evt_1", "webhook-timestamp": "1700000000", "webhook-signature": "v1,AAAA"}
    with Server(tmp_path / "server") as server, receiving(server, port, secret_file):
        for sent in ({}, headers):
            answer = httpx.post(f"http://127.0.0.1:{port}/", content=b"{}", headers=sent)
            assert answer.status_code == 401
