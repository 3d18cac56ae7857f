"""The use of one function, compared with `go tool pprof -peek`, `-tree`, `-lines` and `-list`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pprof_merge import Budget, OutputTooLarge, decode, encode, merge
from pprof_merge.analysis import FunctionUse, Place
from pprof_merge.analysis import stacks as stacks_module
from pprof_proto.profile_pb2 import Profile

from tests.merge.differential import read
from tests.merge.go_use import Peek, go_lines, go_list, go_peek, go_trees
from tests.merge.stacked import stacked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# A line of a function: its name, the file, the line. A location has some, the outermost first.
Line = tuple[str, str, int]
CPU = 1


def located(stacks: Sequence[tuple[Sequence[Sequence[Line]], int]], time_nanos: int = 1) -> bytes:
    """Return a CPU profile of stacks of locations, the root first, each with its value in ns."""
    profile = Profile.FromString(stacked({}, time_nanos=time_nanos))
    strings: dict[str, int] = {}

    def string(text: str) -> int:
        if text not in strings:
            strings[text] = len(profile.string_table)
            profile.string_table.append(text.encode())
        return strings[text]

    functions: dict[tuple[str, str], int] = {}
    for locations, value in stacks:
        ids = []
        for lines in locations:
            number = len(profile.location) + 1
            location = profile.location.add(id=number, mapping_id=1, address=0x401000 + number)
            for name, file, line in reversed(lines):
                if (name, file) not in functions:
                    id_ = functions[name, file] = len(functions) + 1
                    profile.function.add(id=id_, name=string(name), filename=string(file), start_line=1)
                location.line.add(function_id=functions[name, file], line=line)
            ids.append(number)
        profile.sample.add(location_id=reversed(ids), value=[1, value])
    return profile.SerializeToString()


def peek_of(use: FunctionUse) -> Peek:
    callers, callees = ({name: (*call,) for name, call in of.items()} for of in (use.callers, use.callees))
    return Peek(use.flat, use.cum, callers, callees)


def lines_of(use: FunctionUse) -> dict[Place, tuple[int, int]]:
    return {place: (line.flat, line.cum) for place, line in use.lines.items()}


@pytest.mark.parametrize(
    "pattern",
    ["apisvc-v1-*", *(pytest.param(files, marks=pytest.mark.exhaustive) for files in ("etl-*", "big-*"))],
)
def test_every_function_is_used_as_go_says(pattern: str, profiles: Path, tmp_path: Path) -> None:
    merged = merge(map(decode, read(profiles, pattern)))
    trees, of_lines = go_trees(encode(merged), tmp_path), go_lines(encode(merged), tmp_path)
    found: dict[str, tuple[int, int]] = {}
    assert len(trees) > 100
    for name, tree in trees.items():
        use = FunctionUse.of(merged, name, CPU)
        assert peek_of(use) == tree, name
        for place, values in lines_of(use).items():
            found[f"{name} {place.file}:{place.line}" if place.line else f"{name} {place.file}".strip()] = (
                values
            )
    assert found == of_lines


def test_one_function_is_used_as_peek_says(profiles: Path, tmp_path: Path) -> None:
    merged = merge(map(decode, read(profiles, "apisvc-v1-*")))
    for name in ("runtime.mallocgc", "runtime.systemstack"):
        assert peek_of(FunctionUse.of(merged, name, CPU)) == go_peek(encode(merged), tmp_path, name)


FILES = ("a.go", "b.go")
LINES = st.tuples(st.sampled_from(["main.f", "main.g", "lib.h"]), st.sampled_from(FILES), st.integers(1, 4))
STACKS = st.lists(
    st.tuples(st.lists(st.lists(LINES, min_size=1, max_size=3), max_size=4), st.integers(0, 1000)),
    min_size=1,
    max_size=6,
)


def expected(stacks: Sequence[tuple[Sequence[Sequence[Line]], int]], name: str) -> Any:
    """Return total, flat, cum, callers, callees, lines and what is inlined there, counted stack by stack."""
    sums: defaultdict[Any, int] = defaultdict(int)
    for locations, value in stacks:
        frames = [(line, at > 0) for lines in locations for at, line in enumerate(lines)]
        seen: set[Any] = {"total"}
        for at, ((of, file, line), _) in enumerate(frames):
            before = frames[at - 1][0][0] if at else name
            if of == name:
                seen |= {"cum", ("line", file, line)}
                seen |= {("caller", before)} if before != name else set()
                if at + 1 < len(frames):
                    (callee, *_), is_inlined = frames[at + 1]
                    seen |= {("callee", callee)} if callee != name else set()
                    seen |= {("inlined", file, line, callee)} if is_inlined else set()
        if frames and frames[-1][0][0] == name:
            seen |= {"flat", ("flat", *frames[-1][0][1:])}
        for key in seen:
            sums[key] += value
    return {key: value for key, value in sums.items() if value}


def counted(use: FunctionUse) -> Any:
    sums: dict[Any, int] = {"total": use.total, "flat": use.flat, "cum": use.cum}
    sums |= {("caller", other): call.value for other, call in use.callers.items()}
    sums |= {("callee", other): call.value for other, call in use.callees.items()}
    for place, line in use.lines.items():
        sums[("line", *place)], sums[("flat", *place)] = line.cum, line.flat
        sums |= {("inlined", *place, other): value for other, value in line.inlined.items()}
    return {key: value for key, value in sums.items() if value}


@given(stacks=STACKS)
def test_each_stack_counts_once(stacks: list[tuple[list[list[Line]], int]]) -> None:
    for name in ("main.f", "main.g", "lib.h"):
        assert counted(FunctionUse.of(decode(located(stacks)), name, CPU)) == expected(stacks, name)


@given(every=st.lists(STACKS, min_size=1, max_size=3))
def test_the_sum_of_uses_is_the_use_of_the_sum(every: list[list[tuple[list[list[Line]], int]]]) -> None:
    decoded = [decode(located(stacks)) for stacks in every]
    total = FunctionUse()
    for profile in decoded:
        total.add(FunctionUse.of(profile, "main.f", CPU))
    assert counted(total) == counted(FunctionUse.of(merge(decoded), "main.f", CPU))


def test_lines_are_those_of_list(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text("line\n" * 20)

    def f(line: int) -> Line:
        return "main.f", str(source), line

    def g(line: int) -> Line:
        return "main.g", str(source), line

    def h(line: int) -> Line:
        return "main.h", str(source), line

    stacks = [
        ([[f(3)], [f(5), g(12)]], 10),
        ([[f(3)], [f(3)], [f(4)]], 7),
        ([[g(11), f(5)], [h(15)]], 5),
        ([[f(6), f(7)]], 3),
    ]
    profile = located(stacks)
    use = FunctionUse.of(decode(profile), "main.f", CPU)
    assert {place.line: values for place, values in lines_of(use).items()} == go_list(
        profile, tmp_path, "main.f"
    )
    assert peek_of(use) == go_peek(profile, tmp_path, "main.f")
    assert use.cum == 25
    assert use.lines[Place(str(source), 5)].inlined == {"main.g": 10}
    assert use.lines[Place(str(source), 6)].inlined == {"main.f": 3}


def test_chunks_make_no_difference(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = merge(map(decode, read(profiles, "etl-*")))
    names = ("runtime.mallocgc", "runtime.systemstack", "main.main")
    whole = [FunctionUse.of(merged, name, CPU) for name in names]
    monkeypatch.setattr(stacks_module, "_CHUNK_FRAMES", 50)
    assert [FunctionUse.of(merged, name, CPU) for name in names] == whole


def test_a_name_that_no_function_has_gets_similar_ones(profiles: Path) -> None:
    merged = merge(map(decode, read(profiles, "etl-*")))
    use = FunctionUse.of(merged, "MALLOCGC", CPU)
    assert not use.is_known
    assert use.similar[0] == "runtime.mallocgc"
    assert len(use.similar) <= 10
    assert (use.flat, use.cum, use.lines) == (0, 0, {})
    assert FunctionUse.of(merged, "no such", CPU).similar == []


def test_many_lines_take_no_more_than_their_frames() -> None:
    """Each line has its own stack, and what is done for a line may not depend on the number of all lines."""
    n_lines = 20_000
    use = FunctionUse.of(
        decode(located([([[("f", "a.go", line)]], 1) for line in range(1, n_lines + 1)])), "f", CPU
    )
    assert len(use.lines) == n_lines
    assert (use.flat, use.cum) == (n_lines, n_lines)


def test_a_budget_is_kept() -> None:
    profile = decode(located([([[("f", "a.go", line)]], 1) for line in range(1, 1000)]))
    with pytest.raises(OutputTooLarge):
        FunctionUse.of(profile, "f", CPU, Budget(100_000))
