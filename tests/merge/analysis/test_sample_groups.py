"""Groups of samples by a label, compared with `go tool pprof -tagroot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from pprof_merge import decode, encode, merge
from pprof_merge.analysis import MOST_GROUPS, FlameGraph, FlameView, WeighedStacks, group_samples
from pprof_proto.profile_pb2 import Profile

from tests.merge.go_top import go_top

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WHOLE = FlameView(least=0, most=10**9)


def labelled(*samples: tuple[int, Sequence[tuple[str, str | int]]]) -> bytes:
    """Return a profile of samples with values and labels; a number is in bytes."""
    profile, texts = Profile(), [""]

    def text(of: str) -> int:
        if of not in texts:
            texts.append(of)
        return texts.index(of)

    profile.sample_type.add(type=text("cpu"), unit=text("nanoseconds"))
    profile.function.add(id=1, name=text("main"))
    profile.location.add(id=1).line.add(function_id=1)
    for value, labels in samples:
        sample = profile.sample.add(location_id=[1], value=[value])
        for key, given in labels:
            if isinstance(given, int):
                sample.label.add(key=text(key), num=given, num_unit=text("bytes"))
            else:
                sample.label.add(key=text(key), str=text(given))
    profile.string_table.extend(each.encode() for each in texts)
    return profile.SerializeToString()


def groups_of(profile: bytes, key: str) -> dict[str, int]:
    """Return the total of each first call of the flame graph of a profile that is grouped by a label."""
    decoded = decode(profile)
    stacks = WeighedStacks.of(decoded, 0).below(*group_samples(decoded, key, 0))
    graph = FlameGraph.of(stacks, WHOLE)
    return {
        name: int(total[0])
        for name, parent, total in zip(graph.names, graph.parent.tolist(), graph.total, strict=True)
        if parent == 0
    }


def test_the_groups_of_a_real_profile_are_those_of_go(profiles: Path, tmp_path: Path) -> None:
    merged = merge([decode(path.read_bytes()) for path in sorted(profiles.glob("apisvc-v1*"))])
    of_go = go_top(encode(merged), tmp_path, "cpu", "ns", "-tagroot=endpoint")
    column = 1
    groups = group_samples(merged, "endpoint", column)
    totals = np.zeros(len(groups.names), np.int64)
    np.add.at(totals, groups.group_of, merged.samples.values[:, column])
    found = dict(zip(groups.names, totals.tolist(), strict=True))
    assert len(found) > 3
    whole = int(merged.samples.values[:, column].sum())
    assert sum(found.values()) == whole
    assert found.pop("without endpoint") > 0
    assert found == {name: of_go[name.partition("=")[2]][1] for name in found}


def test_values_of_any_kind_have_a_group() -> None:
    profile = labelled(
        (1, []),
        (2, [("thread", "a")]),
        (4, [("thread", "b"), ("thread", "a")]),
        (8, [("thread", 7), ("other", "a")]),
        (16, [("thread", "a")]),
    )
    assert groups_of(profile, "thread") == {
        "without thread": 1,
        "thread=a": 18,
        "thread=b,a": 4,
        "thread=7bytes": 8,
    }
    assert groups_of(profile, "nothing") == {"without nothing": 31}


@pytest.mark.parametrize("more", [0, 1, 5])
def test_the_largest_groups_have_names_of_their_own(more: int) -> None:
    values = range(1, MOST_GROUPS + more + 1)
    groups = groups_of(labelled(*((value, [("id", f"v{value}")]) for value in values)), "id")
    assert len(groups) == MOST_GROUPS
    assert sum(groups.values()) == sum(values)
    small = [*values][: more + 1] if more else []
    assert groups.get("other values of id", 0) == sum(small)


def test_text_that_is_not_utf_8_and_stacks_without_frames_are_grouped() -> None:
    profile = Profile.FromString(labelled((1, [("id", "x")]), (2, [])))
    profile.string_table[profile.sample[0].label[0].str] = b"\xff"
    del profile.sample[1].location_id[:]
    assert groups_of(profile.SerializeToString(), "id") == {"id=\\xff": 1, "without id": 2}
