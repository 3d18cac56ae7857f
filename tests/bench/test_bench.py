"""The benchmark suite on few profiles: it runs, writes what it measured, and keeps the rest of the report.

Takes a minute: it builds Go's side, runs each program at least once for every row, and starts collectors.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.bench import corpus, report
from tests.bench.report import Section
from tests.bench.rig import ROOT, Rig
from tests.bench.run import GROUPS
from tests.interop.postgres_cluster import MISSING

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tests.bench.run", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True)


def parsed(file: Path) -> Profile:
    return Profile.FromString(gzip.decompress(file.read_bytes()))


@pytest.mark.exhaustive
@pytest.mark.long
def test_groups_write_their_tables(tmp_path: Path) -> None:
    written = tmp_path / "benchmarks.md"
    written.write_text("# Benchmarks\n\n## Warm\n\nof another day\n\n## Another\n\nkept\n")
    apart = {"catalog", "compute", "latency", "hostile", "floods", "symbols"}
    groups = [group for group in GROUPS if group not in apart]
    run("--scale", "2000", "--report", written, *groups).check_returncode()
    text = written.read_text()
    assert "of another day" not in text
    assert "## Another\n\nkept" in text
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "## Warm",
        "## Another",
        "## Cold: whole processes",
        "## Cold: whole processes, Go's as it is typed",
        "## Cold: in one process",
        "## One submit",
        "## Memory",
        "## Submits over HTTP",
        "## Push",
        "## Merges over HTTP",
        "## Restarts",
        "## Memory of a collector",
        "## Bulk reads",
        "## Several collectors",
        "## Traces",
        "## Pages",
        "## Pages of a service with many profiles",
        "## The client in a program",
        "## Scraping a fleet",
    ]
    assert text.count("| 2,000, 2 processes |") == 2
    assert text.count("| real") == 9
    assert text.count("| SIG") == 3
    for case in ("not configured", "unsigned", "with a bad signature"):
        assert text.count(f"\n| {case} |") == 4  # a submit, a kept merge, a merge, and the gate
    for case in ("signed, all parts", "signed, no parts"):
        assert text.count(f"\n| {case} |") == 3


@pytest.mark.exhaustive
@pytest.mark.system
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_catalogs_are_measured(tmp_path: Path) -> None:
    written = tmp_path / "benchmarks.md"
    run("--scale", "2000", "--report", written, "catalog").check_returncode()
    text = written.read_text()
    assert text.count("\n| their fingerprint, ") == 2
    for name in (
        "## A catalog of a million",
        "## A catalog of ten million",
        "| blobs, of ",
        "| profiles, of ",
    ):
        assert text.count(f"\n{name}") == 1


@pytest.mark.exhaustive
@pytest.mark.system("clang++", "objcopy", "llvm-symbolizer")
def test_names_are_measured(tmp_path: Path) -> None:
    written = tmp_path / "benchmarks.md"
    run("--scale", "40", "--report", written, "symbols").check_returncode()
    text = written.read_text()
    assert "## Names of functions" in text
    assert "| addresses of 2,500 with other frames than llvm-symbolizer has | 0 | 0 |" in text


@pytest.mark.exhaustive
@pytest.mark.long
def test_floods_are_measured(tmp_path: Path) -> None:
    written = tmp_path / "benchmarks.md"
    run("--scale", "100", "--report", written, "floods").check_returncode()
    text = written.read_text()
    assert "## Floods" in text
    assert all(row.endswith(" 0 |") or " 0 of " in row for row in text.splitlines() if "half-sent" in row)


@pytest.mark.exhaustive
@pytest.mark.system("nginx", "wrk")
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.long
def test_the_compute_profiler_is_measured_beside_the_bare_tools(tmp_path: Path) -> None:
    """Takes a minute: it starts each profiler and each bare tool on a PostgreSQL, and some compile first."""
    written = tmp_path / "benchmarks.md"
    run("--scale", "2000", "--report", written, "compute").check_returncode()
    text = written.read_text()
    for profiler in ("bcc", "perf", "bpftrace"):
        assert text.count(f"\n| {profiler} | ") == 1
        assert text.count(f"\n| {profiler}, pgbench -S | ") == 1
        assert text.count(f"\n| {profiler}, nginx under wrk | ") == 1
    for program in ("threads", "extensions", "asyncio"):
        assert text.count(f"\n| {program} | ≤ 1.02 | ") == 1


@pytest.mark.exhaustive
@pytest.mark.system
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.long
def test_latency_trackers_are_measured_beside_perf(tmp_path: Path) -> None:
    """Takes a minute: it starts each tracker twice on a PostgreSQL, and each compiles first."""
    written = tmp_path / "benchmarks.md"
    run("--scale", "2000", "--report", written, "latency").check_returncode()
    text = written.read_text()
    for name in ("offcpu", "network", "all trackers", "perf trace", "takes"):
        assert text.count(f"\n| {name} | ") == 1
    assert "## Latency trackers in a flood" in text
    assert text.count("\n| bcc | ") == 1


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
