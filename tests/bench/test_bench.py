"""The benchmark suite on few profiles: it runs, writes what it measured, and keeps the rest of the report."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.bench import corpus, report
from tests.bench.report import Section
from tests.bench.rig import ROOT, Rig
from tests.bench.run import GROUPS
from tests.interop.postgres_cluster import MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.bench.run", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True)


def parsed(file: Path) -> Profile:
    return Profile.FromString(gzip.decompress(file.read_bytes()))


class Written(NamedTuple):
    """Titles that a group writes if counts are divided by a scale, and pieces of text, each this often."""

    titles: tuple[str, ...]
    pieces: Mapping[str, int] = MappingProxyType({})
    scale: int = 2000


_UNSIGNED = ("not configured", "unsigned", "with a bad signature")
_PROFILERS = ("bcc", "perf", "bpftrace")
WRITTEN = {
    "cold": Written(
        ("Cold: whole processes", "Cold: whole processes, Go's as it is typed", "Cold: in one process"),
        {"| 2,000, 2 processes |": 2},
    ),
    "warm": Written(("Warm",)),
    "submit": Written(("One submit",)),
    "memory": Written(("Memory",)),
    "start": Written(("Starts",), {"`/readyz`": 1}),
    "http_submit": Written(("Submits over HTTP",)),
    "push": Written(("Push",)),
    "first": Written(("First merges over HTTP",), {"at once |": 4, "read ahead |": 4}),
    "http": Written(("Merges over HTTP", "Disk", "Restarts", "Memory of a collector"), {"| SIG": 3}),
    "bulk": Written(("Bulk reads",)),
    "several": Written(("Several collectors",)),
    "traces": Written(
        ("Traces",),
        # A submit, a kept merge, a merge, and the gate, through which no others come.
        {f"\n| {case} |": 4 for case in _UNSIGNED} | {"\n| signed |": 3},
    ),
    "pages": Written(("Pages", "Pages of a service with many profiles")),
    "client": Written(("The client in a program",)),
    "scrape": Written(("Scraping a fleet",)),
    "catalog": Written(
        ("A catalog of a million profiles", "A catalog of ten million profiles in PostgreSQL"),
        {"\n| their fingerprint, ": 2, "\n| blobs, of ": 1, "\n| profiles, of ": 1},
    ),
    "compute": Written(
        (
            "The compute profiler: what it costs PostgreSQL",
            "The compute profiler: what a profile takes",
            "The Python profiler: what it costs a program",
        ),
        {
            f"\n| {profiler}{load} | ": 1
            for profiler in _PROFILERS
            for load in ("", ", pgbench -S", ", nginx under wrk")
        }
        | {f"\n| {program} | ≤ 1.02 | ": 1 for program in ("threads", "extensions", "asyncio")},
    ),
    "latency": Written(
        (
            "Latency trackers: what they cost PostgreSQL",
            "Latency trackers in a flood",
            "Latency in a Python program",
        ),
        {f"\n| {name} | ": 1 for name in ("offcpu", "network", "all trackers", "perf trace", "takes", "bcc")},
    ),
    "symbols": Written(
        ("Names of functions",),
        {"| addresses of 2,500 with other frames than llvm-symbolizer has | 0 | 0 |": 1},
        scale=40,
    ),
}
_POSTGRES = pytest.mark.skipif(bool(MISSING), reason=MISSING)
_NEEDED = {
    "catalog": (pytest.mark.system, _POSTGRES),
    "compute": (pytest.mark.system("nginx", "wrk"), _POSTGRES),
    "latency": (pytest.mark.system, _POSTGRES),
    "symbols": (pytest.mark.system("clang++", "objcopy", "llvm-symbolizer"),),
}


def test_each_group_has_what_it_writes() -> None:
    assert {*GROUPS} - {*WRITTEN} == {"hostile", "floods"}


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="measuring suites")
@pytest.mark.parametrize("group", [pytest.param(of, marks=_NEEDED.get(of, ())) for of in WRITTEN])
def test_a_group_writes_its_tables(group: str, tmp_path: Path) -> None:
    """Takes up to a minute where it starts each profiler or tracker on a PostgreSQL."""
    expected, written = WRITTEN[group], tmp_path / "benchmarks.md"
    run("--scale", str(expected.scale), "--report", written, group).check_returncode()
    text = written.read_text()
    assert tuple(re.findall("^## (.*)", text, re.MULTILINE)) == expected.titles
    assert {piece: text.count(piece) for piece in expected.pieces} == expected.pieces


@pytest.mark.exhaustive
@pytest.mark.alike(1, family="measuring suites")
def test_floods_are_measured(tmp_path: Path) -> None:
    written = tmp_path / "benchmarks.md"
    run("--scale", "100", "--report", written, "floods").check_returncode()
    text = written.read_text()
    assert "## Floods" in text
    assert all(row.endswith(" 0 |") or " 0 of " in row for row in text.splitlines() if "half-sent" in row)


def test_what_fails_is_said_and_leaves_the_report_alone(tmp_path: Path) -> None:
    (tmp_path / "broken.pb.gz").write_bytes(gzip.compress(b"\x0a\x00"))
    written = tmp_path / "benchmarks.md"
    finished = run("--profiles", tmp_path, "--report", written, "memory")
    assert finished.returncode == 1
    assert b"failed: memory" in finished.stdout
    assert not written.exists()


def test_a_copy_is_its_source_at_another_time(tmp_path: Path) -> None:
    sources = corpus.find(corpus.DEFAULT)
    corpus.make(sources, len(sources) + 1, tmp_path / "copies")
    copies = sorted((tmp_path / "copies").iterdir())
    for number, (copy, source) in enumerate(zip(copies, [*sources, sources[0]], strict=True)):
        first, second = parsed(source), parsed(copy)
        assert second.time_nanos == first.time_nanos + number * 60 * 10**9
        second.time_nanos = first.time_nanos
        assert second == first


def test_mutated_profiles_have_the_samples_of_their_sources_less_some_frames(tmp_path: Path) -> None:
    rig = Rig(corpus.find(corpus.DEFAULT), tmp_path, 1000)
    for copy, source in zip(sorted(rig.mutated.iterdir()), sorted(rig.real.iterdir()), strict=True):
        before, after = parsed(source), parsed(copy)
        assert after.time_nanos == before.time_nanos
        depths = [[len(sample.location_id) for sample in profile.sample] for profile in (before, after)]
        lost = [old - new for old, new in zip(*depths, strict=True)]
        assert set(lost) <= {0, 1}
        assert 0.01 < sum(lost) / len(lost) < 0.3


def test_sections_are_replaced_where_they_stand(tmp_path: Path) -> None:
    written = tmp_path / "benchmarks.md"
    report.write(written, [Section("One", "1"), Section("Two", "2")])
    report.write(written, [Section("One", "another")])
    assert written.read_text().endswith("\n## One\n\nanother\n\n## Two\n\n2\n")
