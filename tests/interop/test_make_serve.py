"""`make serve` as a newcomer meets it: what it prints, clicked on and pasted into a shell."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pprof_merge import decode

from tests.interop.listening import free_port, wait_until_answers
from tests.server import COMMAND

ROOT = Path(__file__).parents[2]
SERVE = (COMMAND, "serve")


@contextmanager
def served(
    folder: Path, port: int, command: Sequence[str | Path] = SERVE, within: Path | None = None
) -> Iterator[str]:
    """Yield what the command prints while it serves, with its data in `folder`."""
    environment = os.environ | {
        "PGOF_BIND_ADDRESS": f"127.0.0.1:{port}",
        "PGOF_DIRECTORY": str(folder / "profiles"),
    }
    output, log = folder / "output", folder / "log"
    with output.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(command, cwd=within or folder, env=environment, stdout=out, stderr=err)
    try:
        wait_until_answers(port, process, log)
        while '"serving"' not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield output.read_text()
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.system("curl")
def test_the_printed_lines_work_by_copy_and_paste(tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path, port) as printed:
        for keys in ("submit_keys", "merge_keys"):
            file = tmp_path / "profiles" / keys
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert file.read_text().strip() not in printed
        lines = printed.split("In another terminal, in this folder:")[1]
        assert lines.count("\ncurl ") == 2
        done = subprocess.run(
            ["bash", "-eu", "-c", lines], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert decode((tmp_path / "default.pgo").read_bytes()).samples.values.sum() > 0


def test_the_printed_link_signs_in_once(tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path, port) as printed:
        (link,) = re.findall(r"^http\S+$", printed, re.MULTILINE)
        with httpx.Client() as browser:
            elsewhere = browser.get(link, headers={"Sec-Fetch-Site": "cross-site"})
            assert (elsewhere.status_code, len(browser.cookies)) == (403, 0)
            answer = browser.get(link, headers={"Sec-Fetch-Site": "none"}, follow_redirects=True)
            assert answer.url.path == "/ui/"
            assert "Load an example" in answer.text
            assert f"http://127.0.0.1:{port}/v1/submit" in answer.text
        with httpx.Client() as another:
            answer = another.get(link)
            assert (answer.status_code, len(another.cookies)) == (403, 0)
            assert "This link was used" in answer.text
    keys = (tmp_path / "profiles" / "merge_keys").read_text()
    with served(tmp_path, port) as printed_again:
        assert link not in printed_again
        (link,) = re.findall(r"^http\S+$", printed_again, re.MULTILINE)
        assert httpx.get(link).status_code == 303
    assert (tmp_path / "profiles" / "merge_keys").read_text() == keys
    assert "unknown file" not in (tmp_path / "log").read_text()


def refused(folder: Path, port: int, data: Path) -> str:
    """Run the command, which can't serve here; return what it says of that."""
    environment = os.environ | {"PGOF_BIND_ADDRESS": f"127.0.0.1:{port}", "PGOF_DIRECTORY": str(data)}
    done = subprocess.run(
        SERVE, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_listens_on_its_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused(tmp_path, port, tmp_path / "profiles")


@pytest.mark.exhaustive
def test_a_second_one_says_what_is_in_its_way(tmp_path: Path) -> None:
    port = free_port()
    folder = tmp_path / "first"
    folder.mkdir()
    with served(folder, port):
        assert f"127.0.0.1:{port}" in refused(folder, port, tmp_path / "profiles")
        assert "another pgo-collector uses it" in refused(folder, free_port(), folder / "profiles")


def distributions(clone: Path) -> set[str]:
    """Names of what is installed in a clone's .venv."""
    found = (clone / ".venv/lib").glob("python*/site-packages/*.dist-info")
    return {path.name.partition("-")[0].lower().replace("_", "-") for path in found}


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_fresh_clone_serves_without_the_tools_of_the_tests(tmp_path: Path) -> None:
    """Takes 20 s: some 40 packages are installed. `make setup` and test_wheel.py compile the engine."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    if (compiled := ROOT / "merge/pprof_merge/_compiled").exists():
        shutil.copytree(compiled, clone / "merge/pprof_merge/_compiled")
    subprocess.run(["make", ".venv/.serves"], cwd=clone, check=True, stdout=subprocess.DEVNULL)
    lock = (clone / "requirements/serve.txt").read_text()
    conditional = set(re.findall(r"^([^ =]+)==[^;\n]+;", lock, re.MULTILINE))
    unconditional = set(re.findall(r"^([^ =]+)==", lock, re.MULTILINE)) - conditional
    ours = {"pprof-proto", "pprof-merge", "pgo-collector"}
    installed = distributions(clone) - {"pip", "uv"}
    assert unconditional | ours <= installed <= unconditional | ours | conditional
    with served(tmp_path, free_port(), ["make", "serve"], within=clone) as printed:
        assert "/v1/submit" in printed
    assert not (clone / ".venv" / ".complete").exists()
