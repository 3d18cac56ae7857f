"""Work done in chunks gives the same result for every chunk size, and for 0, 1 or n ± 1 items."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pprof_merge
import pytest
from pprof_merge import Collection, ProfileError, encode
from pprof_merge.analysis.build_report import ReportedProfile, ReportOptions, report
from pprof_merge.analysis.call_edges import traced_edges
from pprof_merge.analysis.outliers import outlier_scores
from pprof_merge.columns.ragged import first_positions
from pprof_merge.formats import FORMATS, Format
from pprof_merge.merging.batch import Batch
from pprof_merge.merging.weights import Weighting
from pprof_proto.profile_pb2 import Profile

from tests.merge.stacked import stacked
from tests.oracle.builder import World, seeded

# Every constant that sets how much a loop handles at a time.
CHUNKED = (
    "pprof_merge.analysis.dropped_frames:_CHUNK_FRAMES",
    "pprof_merge.analysis.outliers:_CHUNK_STACKS",
    "pprof_merge.analysis.stacks:_CHUNK_FRAMES",
    "pprof_merge.codec.encoding:_PART_BYTES",
    "pprof_merge.columns.ragged:_CHUNK",
    "pprof_merge.merging.batch:_PART_VALUES",
    "pprof_merge.merging.collection:_BATCH_BYTES",
    "pprof_merge.merging.selection:_PART_SAMPLES",
    "pprof_merge.merging.sums:_CACHED_ROWS",
)
_ITS_NAME = re.compile(r"^(_(?:CHUNK|PART|BATCH|CACHED)\w*) = ", re.MULTILINE)


def test_every_chunk_size_is_tested() -> None:
    (folder,) = map(Path, pprof_merge.__path__)
    found = [
        f"{'.'.join(file.relative_to(folder.parent).with_suffix('').parts)}:{name}"
        for file in sorted(folder.rglob("*.py"))
        for name in _ITS_NAME.findall(file.read_text())
    ]
    assert found == [*CHUNKED]


def patch_size(patch: pytest.MonkeyPatch, constant: str, size: int) -> None:
    module, _, name = constant.partition(":")
    patch.setattr(import_module(module), name, size)


def worked_through(profiles: Sequence[bytes]) -> list[Any]:
    """Return the engine's results for profiles: what it accepts, several merges, all formats, the report."""
    collection = Collection()
    found: list[Any] = [str(taken) for taken in collection.extend(profiles)]
    other, numbers = Collection(), [*range(len(collection))]
    other.absorb(collection)
    batch, absorbing = Batch(), Batch()
    for data in profiles:
        with suppress(ProfileError):
            batch.read(data)
    absorbing.absorb(pickle.loads(pickle.dumps(batch)))  # noqa: S301 - our own

    def written(of: Format) -> Callable[[], bytes]:
        return lambda: of.write(collection.merge(depth=of.depth))

    asked: list[Callable[[], bytes]] = [
        lambda: encode(collection.merge()),
        lambda: encode(other.merge()),
        lambda: encode(batch.merge()),
        lambda: encode(absorbing.merge()),
        lambda: encode(collection.merge([*reversed(numbers), *numbers[:1]])),
        lambda: encode(collection.merge(numbers, Weighting("instance"))),
        lambda: report(collection, [ReportedProfile(n, str(n)) for n in numbers], 0, ReportOptions()).json(),
        *map(written, FORMATS.values()),
    ]
    for make in asked:
        try:
            found.append(make())
        except ProfileError as error:
            found.append(str(error))
    return found


def sizes_about(profiles: Iterable[bytes]) -> list[int]:
    """Return chunk sizes around those at which the profiles, or their tables, fill a chunk exactly."""
    messages = [Profile.FromString(profile) for profile in profiles]
    samples = [sample for message in messages for sample in message.sample]
    counted = [
        [len(profile.SerializeToString()) for profile in messages],
        [len(message.sample) for message in messages],
        [len(sample.location_id) for sample in samples],
        [sample.ByteSize() for sample in samples],
        [location.ByteSize() for message in messages for location in message.location],
        [function.ByteSize() for message in messages for function in message.function],
    ]
    full = {total for column in counted for total in [*accumulate(column)][-1:]}
    return sorted({*range(1, 7), *(total + more for total in full for more in (-1, 0, 1))} - {-1, 0})


NAMED = [f"main.main;main.run;main.{name}" for name in "abcdefg"]
LISTS = {
    "none": [],
    "one without samples": [stacked({})],
    "one": [stacked(dict.fromkeys(NAMED, 60))],
    "three": [stacked(dict.fromkeys(NAMED[:n], 60 + n), time_nanos=n) for n in (2, 5, 7)],
    "made-up": [World(seeded(seed)).profile() for seed in (2, 2, 5)],
}


@pytest.mark.parametrize("constant", CHUNKED)
@pytest.mark.parametrize("name", LISTS)
def test_the_same_at_every_boundary(constant: str, name: str) -> None:
    profiles = LISTS[name]
    expected = worked_through(profiles)
    for size in sizes_about(profiles):
        with pytest.MonkeyPatch.context() as patch:
            patch_size(patch, constant, size)
            assert worked_through(profiles) == expected, size


@pytest.mark.parametrize("count", range(8))
def test_outliers_of_so_many_profiles(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = Collection()
    numbers = list(collection.extend(stacked({NAMED[0]: 3, NAMED[n % 7]: 50 + n}) for n in range(1, 8)))
    merged, contributions = collection.merge_traced(map(int, numbers))  # type: ignore[arg-type]
    traced = traced_edges(merged)
    expected = outlier_scores(merged.header, traced, contributions[:count])
    for size in range(1, 18):  # each profile has two stacks
        patch_size(monkeypatch, "pprof_merge.analysis.outliers:_CHUNK_STACKS", size)
        found = outlier_scores(merged.header, traced, contributions[:count])
        assert [*map(np.ndarray.tolist, found)] == [*map(np.ndarray.tolist, expected)], size
        assert len(found.overlap) == count


@pytest.mark.parametrize("count", range(9))
def test_ragged_columns_of_so_many_rows(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.array([3, 1, 3, 0, 2, 2, 5, 1][:count], np.int64)
    for size in range(1, count + 3):
        patch_size(monkeypatch, "pprof_merge.columns.ragged:_CHUNK", size)
        first = [numbers.tolist().index(number) for number in dict.fromkeys(numbers.tolist())]
        assert first_positions(numbers, np.zeros(6, np.bool_)).tolist() == first
