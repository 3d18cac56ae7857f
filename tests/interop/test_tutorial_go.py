"""The Go tutorial as a reader meets it: its commands, pasted into a shell, with a real collector and Go."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from pprof_merge import Limits, decode

from tests.interop.tutorial import DOCS, Clone, commands
from tests.server import Server

SAID = re.findall(r"^\./main\.go:.*", (DOCS / "tutorial-go.md").read_text(), flags=re.MULTILINE)
INSTANCES = 3
# With less work for an instance, some more of them may have to run until enough was sampled.
MOST_ROUNDS = 50
HOT = 50_000_000  # ns
SHORTER = {r"(pb\.gz|\$build) \d00\b": r"\1 60", "seq 21": "seq 3"}

pytestmark = pytest.mark.system("curl")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Clone:
    """A clone in which the quick start was done."""
    clone = Clone(tmp_path_factory.mktemp("clone"), server)
    serve, submit, fetch, _, without_a_server, _ = commands("quickstart.md")
    assert serve == "make serve\n"
    assert clone.paste(submit) == ""
    for fetched in (fetch, without_a_server):
        assert clone.paste(fetched) == ""
        merge = clone.folder / "default.pgo"
        assert decode(merge.read_bytes(), Limits.none()).samples.values.sum() > 0
        merge.unlink()
    return clone


def taken_by(server: Server, function: str) -> int:
    """Return the CPU time (ns) that was sampled in a function of the program."""
    rows = server.ask("/v1/top", service="logsum", n="1000").json()["rows"]
    return sum(row["cum"] for row in rows if row["name"] == function)


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="Go compiles its library")
@pytest.mark.long
def test_the_compiler_says_what_the_page_says(clone: Clone, server: Server) -> None:
    """Takes a minute: with a new profile, Go compiles all of its library that the program uses again.

    It devirtualizes to the type whose method was sampled most, of two that are quick, if sampled often.
    """
    path, build, submit, fetch, guide, measure = commands("tutorial-go.md")

    def paste(commands: str) -> str:
        return clone.paste(path + commands, SHORTER)

    before = len(server.blobs())
    paste(build)
    assert paste(submit).count("40000 lines\n") == INSTANCES
    assert len(server.blobs()) == before + INSTANCES
    answer = server.ask("/v1/profiles", service="logsum")
    assert len(answer.json()["profiles"]) == INSTANCES
    for _ in range(MOST_ROUNDS):
        if taken_by(server, "main.(*numbers).add") > max(HOT, taken_by(server, "main.(*words).add")):
            break
        paste(submit)
    paste(fetch)
    made = clone.folder / ".dev" / "tutorial-go"
    merge = decode((made / "default.pgo").read_bytes(), Limits.none())
    assert merge.samples.values.sum() > 0
    assert not any(b"apisvc" in name for name in merge.strings)

    assert len(SAID) == 5
    assert paste(guide).splitlines() == SAID
    plain, guided = (
        subprocess.run([made / name, "1"], check=True, capture_output=True, text=True).stdout
        for name in ("logsum", "logsum-guided")
    )
    assert plain == guided

    assert re.fullmatch(
        r"logsum: median [\d.]+, from .*\nlogsum-guided: median [\d.]+, from .*\n", paste(measure)
    )
    assert len((made / "times").read_text().splitlines()) == 6
    assert clone.untracked() == []
