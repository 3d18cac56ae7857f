"""The samples and frames that patterns choose, compared with plain loops and with `go tool pprof`."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import decode, encode, merge
from pprof_merge.analysis import focus_names
from pprof_merge.analysis.stacks import stacks_of
from pprof_merge.analysis.top_table import TopTable

from tests.merge.analysis.test_function_use import STACKS, located
from tests.merge.analysis.test_top_table import as_go_has_it
from tests.merge.differential import read
from tests.merge.go_top import go_top

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pprof_merge import Profile
    from pprof_merge.analysis import NameMatcher

    from tests.merge.analysis.test_function_use import Line

BINARY = "/bin/service"
PATTERNS = st.sampled_from([None, "main", r"main\.f", "h$", r"a\.go", "service", "nothing", "", "f|h"])
Names = tuple[str, ...]


def matcher(pattern: str | None) -> NameMatcher | None:
    """Return whether a name has a match of a pattern in it, as a function."""
    return None if pattern is None else lambda name: re.search(pattern, name) is not None


def focused(profile: Profile, focus: str | None, ignore: str | None, hide: str | None) -> Profile:
    return focus_names(profile, focus=matcher(focus), ignore=matcher(ignore), hide=matcher(hide))


def content(profile: Profile) -> Counter[Names]:
    """Return the values of each stack of names."""
    stacks, found = stacks_of(profile), Counter[Names]()
    for chunk in stacks.chunks():
        for at, value in enumerate(profile.samples.values[chunk.samples, 1].tolist()):
            rows = chunk.rows[chunk.offsets[at] : chunk.offsets[at + 1]].tolist()
            found[tuple(stacks.frames[row].name for row in rows)] += value
    return +found


def plainly(
    stacks: Sequence[tuple[Sequence[Sequence[Line]], int]],
    focus: str | None,
    ignore: str | None,
    hide: str | None,
) -> Counter[Names]:
    """Return the same, stack by stack."""

    def has(pattern: str, texts: Sequence[str]) -> bool:
        return any(re.search(pattern, text) for text in texts)

    def is_match(pattern: str, lines: Sequence[Line]) -> bool:
        return has(pattern, [BINARY, *(text for name, file, _ in lines for text in (name, file))])

    found = Counter[Names]()
    for locations, value in stacks:
        if ignore is not None and any(is_match(ignore, lines) for lines in locations):
            continue
        is_kept = any(focus is None or is_match(focus, lines) for lines in locations)
        if not is_kept and (focus, ignore, hide) != (None, None, None):
            continue
        names = tuple(
            name
            for lines in locations
            for name, file, _ in lines
            if hide is None or not has(hide, [BINARY, name, file])
        )
        if names or hide is None:
            found[names] += value
    return +found


@given(STACKS, PATTERNS, PATTERNS, PATTERNS)
def test_samples_and_frames_are_chosen_by_name(
    stacks: list[tuple[list[list[Line]], int]], focus: str | None, ignore: str | None, hide: str | None
) -> None:
    found = focused(decode(located(stacks)), focus, ignore, hide)
    assert content(found) == plainly(stacks, focus, ignore, hide)


def test_without_patterns_it_is_the_profile_itself(profiles: Path) -> None:
    (profile,) = map(decode, read(profiles, "etl-s2-000*"))
    assert focus_names(profile) is profile


@pytest.mark.parametrize(
    ("focus", "ignore", "hide"),
    [
        ("mallocgc", None, None),
        (None, r"^runtime\.", None),
        (None, None, r"^runtime\."),
        ("http", "gcBgMarkWorker", "ServeHTTP$"),
        (r"encoding/json|\.Marshal", None, r"reflect\."),
        (None, None, r"/src/runtime/.*\.go"),
        (None, r"\.s$", r"func\d+$"),
    ],
)
def test_the_table_of_what_is_chosen_is_gos(
    focus: str | None, ignore: str | None, hide: str | None, profiles: Path, tmp_path: Path
) -> None:
    merged = merge(map(decode, read(profiles, "apisvc-v1-*")))
    found = as_go_has_it(TopTable.of(focused(merged, focus, ignore, hide)).only(1))
    named = {"focus": focus, "ignore": ignore, "hide": hide}
    options = [f"-{name}={pattern}" for name, pattern in named.items() if pattern is not None]
    assert found == go_top(encode(merged), tmp_path, "cpu", "nanoseconds", *options)
    assert found
    assert found != as_go_has_it(TopTable.of(merged).only(1))
