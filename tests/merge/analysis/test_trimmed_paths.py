"""Paths of files in views, without where they were built, compared with `go tool pprof -trim_path`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import FORMATS, decode, encode
from pprof_merge.analysis import FunctionUse, TopTable, with_trimmed_paths

from tests.merge.analysis.test_function_use import CPU, located
from tests.merge.go_use import go_lines

if TYPE_CHECKING:
    from pprof_merge import Profile

PATHS = (
    "/home/ci/build/src/a.go",
    "/home/ci/build/a.go",
    "/home/ci/buildings/a.go",
    "/home/ci/build",
    "/src/home/ci/build/a.go",
    "/proc/self/cwd/b.go",
    "/proc/self/cwd/./b.go",
    "/proc/self/cwd/home/ci/build/c.go",
    "/procession/c.go",
    "d.go",
)
FOLDERS = st.lists(
    st.sampled_from(
        ["/home/ci/build", "/home/ci/build/", "/home/ci", "/home", "/src", "home", "/proc/self", "/", "/none"]
    ),
    max_size=3,
)


def of_files(*files: str) -> bytes:
    return located([([[(f"f{number}", file, 7)]], 1 << number) for number, file in enumerate(files)])


def lines_of(profile: Profile) -> dict[str, tuple[int, int]]:
    table = TopTable.of(profile, "line", column=CPU)
    return {
        name: (int(flat), int(cum))
        for name, (flat,), (cum,) in zip(table.names, table.flat, table.cum, strict=True)
    }


@given(FOLDERS)
def test_paths_are_those_of_go(tmp_path_factory: pytest.TempPathFactory, folders: list[str]) -> None:
    profile = of_files(*PATHS)
    found = go_lines(profile, tmp_path_factory.mktemp("go"), f"-trim_path={':'.join(folders)}")
    assert lines_of(with_trimmed_paths(decode(profile), folders)) == found


def test_what_has_become_the_same_is_one() -> None:
    profile = decode(
        located(
            [([[("f", "/build/1/a.go", 7)]], 2), ([[("f", "/build/2/a.go", 7)]], 3), ([[("g", "", 0)]], 4)]
        )
    )
    trimmed = with_trimmed_paths(profile, ["/build/1", "/build/2"])
    assert len(trimmed.functions) == len(profile.functions) - 1
    assert lines_of(trimmed) == {"f a.go:7": (5, 5), "g": (4, 4)}
    (place,) = FunctionUse.of(trimmed, "f", CPU).lines
    assert (place.file, place.line) == ("a.go", 7)
    assert with_trimmed_paths(profile, []) is profile


def test_compilers_read_the_same() -> None:
    profile = decode(of_files(*PATHS))
    trimmed = with_trimmed_paths(profile, ["/home/ci/build"])
    assert encode(trimmed) != encode(profile)
    for name in ("go", "llvm"):
        assert FORMATS[name].write(trimmed) == FORMATS[name].write(profile)
