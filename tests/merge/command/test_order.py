"""The order of merging: by time, and by digest among profiles of one time, however they come."""

from __future__ import annotations

import os
import random
import subprocess
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from pprof_merge import compress, decode, encode, inflate, merge
from pprof_proto.profile_pb2 import Profile

from tests.merge.command.installed import PPROF_MERGE, pprof_merge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(params=["a time of their own", "one time", "two times", "no time"])
def timed(request: pytest.FixtureRequest, profiles: Path, tmp_path: Path) -> list[Path]:
    """Return files of different programs, whose merge has other bytes in another order, with these times."""
    times = {
        "a time of their own": (1, 2, 3, 4),
        "one time": (7, 7, 7, 7),
        "two times": (7, 8, 7, 8),
        "no time": (0, 0, 0, 0),
    }[request.param]
    names = ("apisvc-v1-s1-002", "etl-s2-000", "lintd-s2-006", "compile-c-421-5910")
    files = []
    for name, time in zip(names, times, strict=True):
        profile = Profile.FromString(inflate((profiles / f"{name}.pb.gz").read_bytes()))
        profile.time_nanos = time
        files.append(tmp_path / name)
        files[-1].write_bytes(compress(profile.SerializeToString()))
    return files


def merged(files: Sequence[Path]) -> bytes:
    return compress(encode(merge(decode(file.read_bytes()) for file in files)))


def test_any_order_of_the_files_gives_the_same(timed: list[Path]) -> None:
    expected = merged(timed)
    for order in permutations(timed):
        assert pprof_merge(*order).stdout == expected


def test_several_processes_put_them_in_the_same_order(timed: list[Path]) -> None:
    expected = merged(timed)
    for jobs in ("2", "4"):
        assert pprof_merge("-j", jobs, *reversed(timed)).stdout == expected
        assert pprof_merge("-j", jobs, *timed).stdout == expected


def test_a_file_that_comes_twice_counts_twice(timed: list[Path]) -> None:
    assert pprof_merge(*timed, timed[0]).stdout == merged([*timed, timed[0]])


def test_what_comes_through_pipes_is_read_once(timed: list[Path], tmp_path: Path) -> None:
    expected = merged(timed)
    first, second, *others = random.Random(1).sample(timed, len(timed))  # noqa: S311 - an order
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command: list[Path | str] = [PPROF_MERGE, pipe, *others, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        pipe.write_bytes(first.read_bytes())
        assert running.communicate(second.read_bytes())[0] == expected


def test_a_report_and_a_weight_put_them_in_the_same_order(timed: list[Path], tmp_path: Path) -> None:
    expected = merged(timed)
    for order in (timed, timed[::-1]):
        assert pprof_merge("--report", tmp_path / "report", *order).stdout == expected
    assert len({pprof_merge("--weight", "version", *order).stdout for order in (timed, timed[::-1])}) == 1
