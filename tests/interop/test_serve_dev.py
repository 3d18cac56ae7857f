"""`make serve` as a newcomer meets it: the lines that it prints, pasted into a shell."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pprof_merge import decode

from tests.interop.listening import free_port, wait_until_answers

ROOT = Path(__file__).parents[2]
SCRIPT = (sys.executable, ROOT / "tools" / "serve_dev.py")


@contextmanager
def served(
    folder: Path, port: int, command: Sequence[str | Path] = SCRIPT, within: Path | None = None
) -> Iterator[str]:
    """Yield what `serve_dev` prints while it serves, with all that it makes in `folder`."""
    environment = os.environ | {
        "PGOF_BIND_ADDRESS": f"127.0.0.1:{port}",
        "PGOF_DIRECTORY": str(folder / "profiles"),
        "PGOF_SUBMIT_AUTH_KEYS_FILE": str(folder / "dev" / "submit_keys"),
        "PGOF_MERGE_AUTH_KEYS_FILE": str(folder / "dev" / "merge_keys"),
    }
    output, log = folder / "output", folder / "log"
    with output.open("wb") as out, log.open("wb") as err:
        # From elsewhere, if nothing else is said: it finds the repository by itself.
        process = subprocess.Popen(command, cwd=within or folder, env=environment, stdout=out, stderr=err)
    try:
        wait_until_answers(port, process, log)
        yield output.read_text()
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.system("curl")
def test_the_printed_lines_work_by_copy_and_paste(tmp_path: Path) -> None:
    port = free_port()
    with served(tmp_path, port) as printed:
        for keys in ("submit_keys", "merge_keys"):
            file = tmp_path / "dev" / keys
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert file.read_text().strip() not in printed
        lines = printed.split("In another terminal, in this folder:")[1]
        assert lines.count("\ncurl ") == 2
        # In the repository's folder, as it says; only what is fetched goes elsewhere.
        pasted = lines.replace("-o default.pgo", f"-o {tmp_path}/default.pgo")
        done = subprocess.run(
            ["bash", "-eu", "-c", pasted], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert decode((tmp_path / "default.pgo").read_bytes()).samples.values.sum() > 0


def refused(folder: Path, port: int, data: Path) -> str:
    """Run `serve_dev`, which can't serve here; return what it says of that."""
    environment = os.environ | {
        "PGOF_BIND_ADDRESS": f"127.0.0.1:{port}",
        "PGOF_DIRECTORY": str(data),
        "PGOF_SUBMIT_AUTH_KEYS_FILE": str(folder / "dev" / "submit_keys"),
        "PGOF_MERGE_AUTH_KEYS_FILE": str(folder / "dev" / "merge_keys"),
    }
    done = subprocess.run(SCRIPT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_what_listens_on_its_port_is_told(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for keys in ("submit_keys", "merge_keys"):
        (tmp_path / "dev" / keys).write_text("a key\n")
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
    installed = distributions(clone) - {"pip"}
    assert unconditional | ours <= installed <= unconditional | ours | conditional
    with served(tmp_path, free_port(), ["make", "serve"], within=clone) as printed:
        assert "/v1/submit" in printed
    assert not (clone / ".venv" / ".complete").exists()
