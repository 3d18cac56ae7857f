"""The curve of samples: what is drawn from a profile and changed in sources, and its tables."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from pprof_merge.analysis.gain import MEASURED, USUAL_PER_CENT, Compiler
from pprof_proto.profile_pb2 import Profile

from tests.gains import curve, page
from tests.gains.programs import ROOT


def profile(counts: Sequence[int]) -> bytes:
    """Return a profile with these counts of samples in its stacks, of 10 ms each."""
    made = Profile(string_table=[b"", b"samples", b"count", b"cpu", b"nanoseconds"])
    for type_, unit in ((1, 2), (3, 4)):
        made.sample_type.add(type=type_, unit=unit)
    for number, count in enumerate(counts, 1):
        made.location.add(id=number)
        made.sample.add(location_id=[number], value=[count, 10_000_000 * count])
    return gzip.compress(made.SerializeToString())


def drawn(thinned: bytes) -> dict[int, int]:
    samples = Profile.FromString(gzip.decompress(thinned)).sample
    assert all(sample.value[1] == 10_000_000 * sample.value[0] for sample in samples)
    return {sample.location_id[0]: sample.value[0] for sample in samples}


@pytest.mark.parametrize("count", [1, 500, 10_000])
def test_a_draw_has_as_many_samples_as_asked_for(count: int) -> None:
    counts = [9000, 900, 99, 1]
    found = drawn(curve.thinned(profile(counts), count, 1))
    assert sum(found.values()) == count
    assert all(0 < found[number] <= counts[number - 1] for number in found)
    assert found == drawn(curve.thinned(profile(counts), count, 1))


def test_draws_differ_by_seed() -> None:
    draws = [drawn(curve.thinned(profile([500] * 20), 1000, seed)) for seed in (1, 2)]
    assert draws[0] != draws[1]


@pytest.mark.parametrize("source", ["tutorial-c/json.c", "tutorial-go/main.go"])
def test_changed_sources_have_a_line_more_in_some_functions(source: str) -> None:
    text = (ROOT / "docs" / source).read_text()
    every, some, none = (curve.changed(text, part, 7).splitlines() for part in (1.0, 0.3, 0.0))
    assert none == text.splitlines()
    assert len(none) < len(some) < len(every)
    assert [line for line in every if line] == [line for line in none if line]


class Made:
    """A program of which each sample saves the same, until all is saved."""

    how = "in thought"
    sources: Sequence[Path] = ()

    def __init__(self, title: str, samples: int) -> None:
        self.title, self.collected = title, profile([samples])

    def saved(self, profile: bytes) -> float:
        return min(sum(drawn(profile).values()), 1000) / 4000


def test_rows_of_other_programs_stay(tmp_path: Path) -> None:
    page = tmp_path / "gains.md"
    for title, samples in (("lua, clang 14", 10_000), ("json, clang 14", 400), ("lua, clang 14", 2000)):
        curve.measure(Made(title, samples), page, "make gains", "# What programs gain\n")
    text = page.read_text()
    assert text.count("## How many samples are enough") == text.count("## How long a profile lasts") == 1
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| lua")]
    assert [row[1:3] for row in rows] == [
        *(["10", "1 %"], ["100", "10 %"], ["300", "30 %"], ["1,000", "100 %"], ["2,000", "100 %"]),
        *([part, "100 %"] for part in ("10 %", "25 %", "50 %", "100 %")),
    ]
    assert "| json, clang 14 | 300 | 75 % | 75 % | 75 % |" in text


@pytest.mark.parametrize(
    ("compiler", "name"),
    [("go", "Go"), ("llvm", "clang")],
)
def test_the_report_follows_the_table(compiler: Compiler, name: str) -> None:
    assert list(MEASURED[compiler]) == curve.lowest_by_samples(page.FILE.read_text(), name)


def test_the_report_expects_of_go_what_the_table_has() -> None:
    rows = [row for row in page.read(page.FILE.read_text()) if row.compiler.startswith("Go") and row.ratio]
    saved = [round(100 - 100 / float(row.ratio.split()[0])) for row in rows]
    least, most = USUAL_PER_CENT
    assert least <= min(saved)
    assert max(saved) == most
