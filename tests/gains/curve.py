"""How a gain grows with the samples, and shrinks as the sources change: two tables of docs/gains.md.

One large profile is taken. Smaller ones are drawn from it, and older ones are imitated: the sources that are
built with it have changed since.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

import numpy as np
from pprof_proto.profile_pb2 import Profile

from tests.bench import machine, report
from tests.bench.measure import progress
from tests.bench.report import Section
from tests.gains.builds import ClangBuilder, Toolchain
from tests.gains.costs import instructions
from tests.gains.go import INSTANCES, GoProgram, build_packages, copied_sources, profile_go
from tests.gains.native import profile, with_program
from tests.gains.programs import Program

PREFIX = "curve-"
SAMPLES, CHANGES = "How many samples are enough", "How long a profile lasts"
_SAMPLES_HEAD = ("program", "samples", "of the gain with all", "lowest", "highest")
_CHANGES_HEAD = ("program", "functions changed", "of the gain with none", "lowest", "highest")
_ABOUT_SAMPLES = """How much of what all samples save is saved with some of them, drawn at random: the median
of the draws, and the lowest and highest."""
_ABOUT_CHANGES = """How much of it is still saved after some functions have changed: a line was added at a
random place of each, which moves those below. Lines are counted from the first of their function, so other
functions aren't affected. These changes are made up; a function that was renamed loses all."""
_POINTS = (10, *(digit * 10**power for power in range(2, 7) for digit in (1, 3)))
_CHANGED = (0.1, 0.25, 0.5, 1.0)
_DRAWS = 3
_DRAWN_ONCE = 100_000  # from here on, draws hardly differ
_HERTZ = 9973


class Subject(Protocol):
    """A program with a large profile: `collected`, in pprof."""

    title: str
    how: str
    collected: bytes
    sources: Sequence[Path]

    def saved(self, profile: bytes) -> float:
        """Return the share of the cost that a build of the sources as they are saves with a profile."""


class NativeSubject:
    """A program of C, by executed instructions, with profiles that are made with the program."""

    def __init__(self, program: Program, folder: Path, samples: int) -> None:
        self._program, self._folder = program, folder
        self._builder = ClangBuilder(program, Toolchain("clang"), folder)
        self.title = f"{program.name}, {self._builder.compiler}"
        self.sources: Sequence[Path] = self._builder.sources
        self._plain = self._builder.build("none")
        self._none = self._instructions(self._plain)
        # A training has some 10,000 samples at 997 Hz.
        amount = max(1, round(program.training * samples / (10 * _HERTZ)))
        merged, _ = profile(self._plain, program, self._builder, folder, hertz=_HERTZ, amount=amount)
        self.collected = merged.read_bytes()
        self.how = f"in executed instructions, {_HERTZ} samples a second"

    def saved(self, profile: bytes) -> float:
        """Return as `Subject` documents."""
        drawn = self._folder / "drawn.pb.gz"
        drawn.write_bytes(profile)
        guide = with_program(drawn, self._plain, self._builder)
        return 1 - self._instructions(self._builder.build("guided", guide, flow=True)) / self._none

    def _instructions(self, build: Path) -> int:
        return instructions(build, self._program.arguments(self._program.counted), self._folder)


class GoSubject:
    """A program of Go, by executed instructions.

    The profile guides its own package and those of the library in which it spends its time, since a build of
    the whole library takes long.
    """

    def __init__(self, program: GoProgram, folder: Path, samples: int) -> None:
        self._program, self._folder = program, folder
        (folder / "sources").mkdir()
        self._copies = copied_sources(program, folder / "sources")
        self.sources: Sequence[Path] = [*self._copies.values()]
        plain = build_packages(program, folder / "none", self._copies)
        self._none = program.instructions(plain, folder)
        # A training has some 1,000 samples.
        rounds, *others = program.training[0]
        work = str(int(rounds) * samples // 1000), *others
        self.collected = profile_go(plain, folder, program, INSTANCES * (work,)).merged.read_bytes()
        self.title = f"{program.source.name}, {program.source.compiler}"
        guided = ", ".join(("its own package", *(f"`{package}`" for package in program.library)))
        self.how = f"in executed instructions, 100 samples a second, with the profile for {guided}"

    def saved(self, profile: bytes) -> float:
        """Return as `Subject` documents."""
        drawn = self._folder / "drawn.pb.gz"
        drawn.write_bytes(profile)
        guided = build_packages(self._program, self._folder / "guided", self._copies, drawn)
        return 1 - self._program.instructions(guided, self._folder) / self._none


class _Share(NamedTuple):
    """The savings of some draws, as shares of what all samples save."""

    middle: float
    low: float
    high: float

    def cells(self) -> tuple[str, str, str]:
        """Return the three as per cent, in whole numbers."""
        middle, low, high = (f"{100 * value:.0f} %" for value in self)
        return middle, low, high


def measure(subject: Subject, page: Path, command: str, introduction: str) -> None:
    """Measure a program's gain by samples and by changes, and write its rows and how they were measured."""
    stamp = machine.stamp()
    full, available = subject.saved(subject.collected), samples_in(subject.collected)
    progress(f"{subject.title}: {available:,} samples save {100 * full:.1f} %")
    of_samples = [*rows_by_samples(subject.title, subject.collected, subject.saved, full)]
    of_changes = list[tuple[str, ...]]()
    for part in _CHANGED:
        share = _share(_saved_after_changes(subject, part), full)
        of_changes.append((subject.title, f"{100 * part:.0f} %", *share.cells()))
        progress(f"{subject.title}: {100 * part:.0f} % of functions changed: {share.middle:.2f}")
    how = (
        f"`{command}`: {subject.title}, {subject.how}. All {available:,} samples save\n"
        f"{100 * full:.1f} %. {_DRAWS} draws each, and one from {_DRAWN_ONCE:,} samples on.\n\n{stamp}"
    )
    sections = [
        section_by_samples(page, of_samples),
        Section(CHANGES, f"{_ABOUT_CHANGES}\n\n{_table(page, CHANGES, _CHANGES_HEAD, of_changes)}"),
        Section(f"Samples and changes: {subject.title}", how),
    ]
    report.write(page, sections, introduction)


def rows_by_samples(
    title: str,
    collected: bytes,
    saved: Callable[[bytes], float],
    full: float,
    counts: Sequence[int] = _POINTS,
) -> Iterator[tuple[str, ...]]:
    """Yield a program's rows of the table of samples.

    `saved` returns the share of the cost that a build with a profile saves, which is `full` with all samples
    that were `collected`. Of `counts` samples, some are drawn from them.
    """
    available = samples_in(collected)
    for count in (count for count in counts if count < available):
        draws = range(1 if count >= _DRAWN_ONCE else _DRAWS)
        share = _share((saved(thinned(collected, count, seed)) for seed in draws), full)
        progress(f"{title}: {count:,} samples: {share.middle:.2f}")
        yield title, f"{count:,}", *share.cells()
    yield title, f"{available:,}", *_Share(1, 1, 1).cells()


def section_by_samples(page: Path, rows: Sequence[tuple[str, ...]]) -> Section:
    """Return a page's section with the table of samples, with a program's rows in place of its old ones."""
    return Section(SAMPLES, f"{_ABOUT_SAMPLES}\n\n{_table(page, SAMPLES, _SAMPLES_HEAD, rows)}")


def samples_in(profile: bytes) -> int:
    """Return how many samples a gzipped profile has."""
    return sum(sample.value[0] for sample in _parsed(profile).sample)


def thinned(profile: bytes, count: int, seed: int) -> bytes:
    """Return a profile with `count` samples of a gzipped one, drawn at random, also gzipped."""
    parsed = _parsed(profile)
    samples = list(parsed.sample)
    weights = np.array([sample.value[0] for sample in samples])
    kept = np.random.default_rng(seed).multivariate_hypergeometric(weights, count, method="marginals")
    del parsed.sample[:]
    for sample, was, now in zip(samples, weights.tolist(), kept.tolist(), strict=True):
        if now:
            sample.value[:] = [value * now // was for value in sample.value]
            parsed.sample.append(sample)
    return gzip.compress(parsed.SerializeToString(), 1)


def changed(source: str, part: float, seed: int) -> str:
    """Return a source of C or Go in which this part of the functions has one more line, at a random place.

    A function begins with a line that isn't indented and ends with `{`, or is `{`, and ends with `}`.
    """
    lines, generator = source.split("\n"), random.Random(seed)  # noqa: S311 - an example
    places = list[int]()
    for first, last in _functions(lines):
        within = [row for row in range(first, last) if re.search(r"[;{}]$", lines[row])]
        if within and generator.random() < part:
            places.append(generator.choice(within))
    for place in reversed(places):
        lines.insert(place + 1, "")
    return "\n".join(lines)


def _functions(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    first = None
    for row, line in enumerate(lines):
        if line == "}" and first is not None:
            yield first, row
            first = None
        elif re.search(r"^(\S.*)?\{$", line):
            first = row


def _saved_after_changes(subject: Subject, part: float) -> Iterator[float]:
    before = {source: source.read_text() for source in subject.sources}
    for seed in range(_DRAWS):
        for source, text in before.items():
            source.write_text(changed(text, part, seed))
        try:
            yield subject.saved(subject.collected)
        finally:
            for source, text in before.items():
                source.write_text(text)


def _share(saved: Iterable[float], full: float) -> _Share:
    shares = [each / full for each in saved]
    return _Share(median(shares), min(shares), max(shares))


def _table(page: Path, title: str, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return the section's table with these rows of one program in place of its old ones."""
    old = page.read_text() if page.exists() else ""
    kept = [row for row in _rows(old, title) if row[0] != rows[0][0]]
    return report.table(head, sorted([*kept, *rows], key=lambda row: row[0]))


def lowest_by_samples(page: str, compiler: str) -> list[tuple[int, float]]:
    """Return the numbers of samples on docs/gains.md, with the lowest share of the programs of a compiler.

    A program's share is its median, or that with fewer samples if that is higher, since draws differ: from 0
    to 1, which it is from all its samples on. Between two numbers it rises with the logarithm. The compiler
    is the beginning of its name, such as `Go`.
    """
    programs = [
        [(int(samples.replace(",", "")), _number(share)) for samples, share, *_ in rows]
        for rows in _by_program(page, SAMPLES, compiler)
    ]
    most = max(rows[-1][0] for rows in programs)
    # Some programs were measured with ten samples, and not all.
    amounts = [amount for amount in _POINTS if max(rows[0][0] for rows in programs) <= amount < most]

    def share(rows: list[tuple[int, float]], amount: int) -> float:
        samples, shares = np.array(rows).T
        rising = np.maximum.accumulate(shares).clip(0, 1)
        return round(float(np.interp(log(amount), np.log(samples), rising)), 2)

    return [*((amount, min(share(rows, amount) for rows in programs)) for amount in amounts), (most, 1.0)]


def _by_program(page: str, title: str, compiler: str) -> list[list[tuple[str, ...]]]:
    """Return the rows of a section's table, without their first cells, for each program of a compiler."""
    programs: dict[str, list[tuple[str, ...]]] = {}
    for program, *cells in _rows(page, title):
        if program.partition(", ")[2].startswith(compiler):
            programs.setdefault(program, []).append(tuple(cells))
    return [*programs.values()]


def _rows(page: str, title: str) -> list[tuple[str, ...]]:
    found = re.search(rf"^## {title}\n(?:(?!\|).*\n)+((?:\|.*\n?)+)", page, re.MULTILINE)
    lines = found[1].splitlines()[2:] if found else []
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def _number(cell: str) -> float:
    """Return a share, such as `90 %`."""
    return float(cell.split(maxsplit=1)[0]) / 100


def _parsed(profile: bytes) -> Profile:
    return Profile.FromString(gzip.decompress(profile))
