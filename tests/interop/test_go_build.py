"""The loop that all of this is for: a Go program profiles itself, and is built again with the merge."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.pushing import assert_pushed, one, push, without_start_lines
from tests.interop.curl import Client, total
from tests.interop.go_toolchain import go
from tests.merge.command.installed import pprof_merge
from tests.server import Server

pytestmark = pytest.mark.system("curl")

DEVIRTUALIZED = "PGO devirtualizing interface call each.area to square.area"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workload")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    """The workload, built without a profile."""
    go("build", "-pgo=off", "-ldflags=-buildid=", "-o", folder / "plain")
    return folder / "plain"


@pytest.fixture(scope="module")
def profiles(folder: Path, plain: Path) -> list[Path]:
    """Three runs of it that profiled themselves."""
    files = [folder / f"cpu{run}.pb.gz" for run in range(3)]
    for file in files:
        subprocess.run([plain, file, "0.7"], check=True, stdout=subprocess.DEVNULL)
    return files


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Iterator[Client]:
    """curl, to a collector that only this module submits to."""
    with Server(folder / "server") as server:
        yield Client(server.base_url, server, folder)


@pytest.fixture(scope="module")
def merge(folder: Path, fleet: Client, profiles: list[Path]) -> Path:
    """The merge of the three, as a pipeline fetches it."""
    for file in profiles:
        assert fleet.submit(file.read_bytes()).status == 204
    answer = fleet.merge()
    assert answer.status == 200
    file = folder / "default.pgo"
    file.write_bytes(answer.body)
    return file


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="Go compiles its library")
def test_a_build_is_the_same_beside_profiles_that_no_compiler_can_use(
    folder: Path, fleet: Client, merge: Path, profiles: list[Path]
) -> None:
    """Takes over 20 s where nothing is in Go's cache, as all builds with a new profile."""
    for file in profiles:
        profile = gzip.decompress(file.read_bytes())
        assert_pushed(push(fleet.server, one(profile, "both")))
        assert_pushed(push(fleet.server, one(without_start_lines(file.read_bytes()), "both")))
    answer = fleet.server.merge(query={"service": "both"})
    assert answer.content == merge.read_bytes()
    assert fleet.server.ask("/v1/report", service="both").json()["kept_apart"]["profiles"] == len(profiles)
    beside = folder / "beside" / "default.pgo"
    beside.parent.mkdir()
    beside.write_bytes(answer.content)
    binaries = []
    for guide in (merge, beside):
        binary = guide.with_suffix(".binary")
        go("build", f"-pgo={guide}", "-trimpath", "-ldflags=-buildid=", "-o", binary)
        binaries.append(binary.read_bytes())
    assert binaries[0] == binaries[1]


def lines_in_sum(binary: Path) -> set[str]:
    """The source lines that the machine code of `sum`, which calls through the interface, comes from."""
    code = go("tool", "objdump", "-s", r"^main\.sum$", binary)
    return set(re.findall(r"^\s+(main\.go:\d+)", code, flags=re.MULTILINE))


def test_go_builds_another_program_with_the_merge(folder: Path, plain: Path, merge: Path) -> None:
    """Takes up to 30 s: with a new profile, Go compiles all of its library that the program uses again."""
    guided = folder / "guided"
    said = go("build", f"-pgo={merge}", "-gcflags=-m", "-ldflags=-buildid=", "-o", guided)
    assert DEVIRTUALIZED in said
    assert f"-pgo={merge.name}" in go("version", "-m", guided)
    # The settings that a binary records differ anyway; what is inlined does only if the profile was used.
    assert lines_in_sum(guided) > lines_in_sum(plain) != set()
    again = folder / "again"
    go("build", "-pgo=off", "-ldflags=-buildid=", "-o", again)
    assert again.read_bytes() == plain.read_bytes()
    subprocess.run([guided, os.devnull, "0.1"], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def imports(folder: Path) -> Path:
    """Where the compiler finds what the workload imports."""
    file = folder / "imports"
    listed = go("list", "-export", "-deps", "-f", "packagefile {{.ImportPath}}={{.Export}}", "-pgo=off", ".")
    file.write_text("".join(f"{line}\n" for line in listed.splitlines() if not line.endswith("=")))
    return file


def compiled_with(profile: Path, imports: Path) -> str:
    """Return the messages of Go's compiler on its decisions for the workload's one file."""
    files = ("-importcfg", imports, "-pgoprofile", profile, "-o", os.devnull)
    return go("tool", "compile", "-p", "main", "-m=2", *files, "main.go")


def test_a_function_that_a_rule_names_is_not_inlined(folder: Path, imports: Path, merge: Path) -> None:
    rules, ruled = folder / "rules", folder / "ruled.pgo"
    rules.write_text("# too large\nnoinline main.square.area\n")
    assert pprof_merge("--rules", rules, "-o", ruled, merge).returncode == 0
    with_merge, with_rule = (compiled_with(profile, imports) for profile in (merge, ruled))
    inlined = re.compile(r"main\.go:\d+:\d+: inlining call to square\.area")
    assert DEVIRTUALIZED in with_merge
    assert inlined.search(with_merge)
    assert "cannot inline square.area: function too complex" not in with_merge
    assert DEVIRTUALIZED not in with_rule
    assert not inlined.search(with_rule)
    assert "cannot inline square.area: function too complex" in with_rule
    # What no rule names is as it was.
    assert "inlining call to circle.area" in with_rule


@pytest.mark.parametrize("weight", ["duration", "instance", "version"])
def test_the_compiler_takes_a_weighted_merge(
    weight: str, folder: Path, imports: Path, profiles: list[Path]
) -> None:
    """As `go build -pgo` hands it over; the runs are alike, so that what is hot is so by any weight."""
    weighted, prepared = folder / f"{weight}.pgo", folder / f"{weight}.preprofile"
    assert pprof_merge("--weight", weight, "--half-life", "1h", "-o", weighted, *profiles).returncode == 0
    go("tool", "preprofile", "-o", prepared, "-i", weighted)
    assert DEVIRTUALIZED in compiled_with(prepared, imports)


def test_pprof_reads_the_merge(merge: Path, profiles: list[Path]) -> None:
    """Takes over 20 s where nothing is in Go's cache: Go builds its pprof on first use."""
    top = go("tool", "pprof", "-top", merge)
    assert "Type: cpu" in top
    assert "main.square.area" in top
    (measured,) = re.findall(r"Total samples = \S+", top)
    assert measured in go("tool", "pprof", "-top", *profiles)


def test_a_client_like_that_of_pgo_fleet_submits(client: Client, folder: Path, profile: bytes) -> None:
    """Takes over 20 s where nothing is in Go's cache: it builds net/http."""
    pusher, file = folder / "pusher", folder / "pushed.pb.gz"
    go("build", "-o", pusher, program="pusher")
    file.write_bytes(profile)
    push: list[str | Path] = [pusher, f"{client.url}/v1/submit", file]
    before = client.total()
    subprocess.run(push, check=True, env=os.environ | {"KEY": client.server.submit_key})
    added = tuple(now - then for now, then in zip(client.total(), before, strict=True))
    assert added == total(profile)
    environment = os.environ | {"KEY": client.server.merge_key}
    refused = subprocess.run(push, check=False, env=environment, capture_output=True, text=True)
    assert refused.returncode == 1
    assert refused.stderr.startswith("403 Forbidden")
