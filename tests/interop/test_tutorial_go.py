"""The Go tutorial as a reader meets it: its commands, pasted into a shell, with a real collector and Go."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pprof_merge import Limits, decode

from tests.interop.shell import pasted
from tests.oracle.oracle import GO, go_environment
from tests.server import Server

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tutorial-go.md").read_text()
SAID = re.findall(r"^\./main\.go:.*", PAGE, flags=re.MULTILINE)
INSTANCES = 3
# With less work for an instance, some more of them may have to run until enough was sampled.
MOST_ROUNDS = 50


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def steps() -> dict[str, str]:
    """The commands of each numbered heading."""
    found = re.findall(r"^## \d\. (.*?)$.*?^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return dict(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """Where a reader would stand: the program, and the keys that `make serve` makes."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(DOCS / "tutorial-go", folder / "docs" / "tutorial-go")
    (folder / ".dev").mkdir()
    for keys in (server.submit_keys, server.merge_keys):
        shutil.copy(keys, folder / ".dev")
    return folder


def followed(commands: str, folder: Path, server: Server) -> str:
    """What they print, at the server's address and with less work for each instance; fails if one does."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    here = commands.replace("http://127.0.0.1:8080", server.base_url)
    shorter = re.sub(r"(pb\.gz|\$build) \d00\b", r"\1 60", here).replace("seq 21", "seq 3")
    return pasted(shorter, folder, go_environment() | {"PATH": f"{Path(GO).parent}:{os.environ['PATH']}"})


def taken_by(server: Server, function: str) -> int:
    """The CPU time (ns) that was sampled in a function: a hundredth of all, where it is a short one."""
    rows = server.ask("/v1/top", n="1000").json()["rows"]
    return sum(row["cum"] for row in rows if row["name"] == function)


def test_the_compiler_says_what_the_page_says(steps: dict[str, str], folder: Path, server: Server) -> None:
    """Takes a minute: with a new profile, Go compiles all of its library that the program uses anew.

    It devirtualizes to the type whose method was sampled most, of two that are both quick.
    """
    build, submit, fetch, guide, measure = steps.values()
    followed(build, folder, server)
    assert followed(submit, folder, server).count("40000 lines\n") == INSTANCES
    assert len(server.blobs()) == INSTANCES
    for _ in range(MOST_ROUNDS):
        if taken_by(server, "main.(*numbers).add") > taken_by(server, "main.(*words).add"):
            break
        followed(submit, folder, server)
    followed(fetch, folder, server)
    merge = decode((folder / "default.pgo").read_bytes(), Limits.none())
    assert merge.samples.values.sum() > 0

    assert len(SAID) == 5
    assert followed(guide, folder, server).splitlines() == SAID
    plain, guided = (
        subprocess.run([folder / name, "1"], check=True, capture_output=True, text=True).stdout
        for name in ("logsum", "logsum-guided")
    )
    assert plain == guided

    assert re.fullmatch(
        r"logsum: median [\d.]+, from .*\nlogsum-guided: median [\d.]+, from .*\n",
        followed(measure, folder, server),
    )
    assert len((folder / "times").read_text().splitlines()) == 6
