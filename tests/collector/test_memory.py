"""What a worker's memory depends on: what profiles have in common, and not how many there are."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from pgo_collector.engine.collected import SHELF, Chosen
from pgo_collector.engine.forms import PLAIN_FORM
from pgo_collector.engine.stored import StoredBlobs, StoredSeries
from pgo_collector.engine.tasks import merge_blobs
from pprof_merge import decode

from tests.faults.stacks import EPOCH, profile_of, tally

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A profile took 2,000 bytes and more when each was an object; that much of it would be noticed.
_MOST_BYTES = 500
_FEW, _MANY = 1_000, 8_000


def store(folder: Path, count: int) -> Chosen:
    """So many profiles of one stack, in files."""
    every = []
    for number in range(count):
        profile = profile_of("same", time_nanos=EPOCH + number)
        every.append((profile, decode(profile)))
    blobs = StoredBlobs(
        str(folder),
        (StoredSeries("service/cpu"),),
        np.zeros(count, np.int32),
        np.array([profile.header.time_nanos for _, profile in every]),
        np.frombuffer(b"".join(profile.digest for _, profile in every), np.uint8).reshape(-1, 32),
    )
    for row, (content, _) in enumerate(every):
        path = blobs.path(row)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Chosen("service", "cpu", blobs)


def memory_after(chosen: Chosen, folder: Path) -> int:
    """The bytes that a worker has of its own after a merge: without the pages of files."""
    SHELF.most_bytes, SHELF.folder = 1 << 30, folder
    merged = folder / "merged"
    assert merge_blobs(chosen, PLAIN_FORM, merged).left_out == ()
    assert tally(merged.read_bytes()) == {"same": len(chosen.blobs)}
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("RssAnon:"))
    return int(kilobytes) << 10


def test_a_profile_more_takes_next_to_no_memory(tmp_path: Path) -> None:
    """Thousands of files are written, and read by processes of their own: half a minute where others work."""
    sizes = {}
    for count in (_FEW, _MANY):
        chosen = store(tmp_path / f"{count}", count)
        for start in ("first", "second"):  # what is decoded, and what is found on disk
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                sizes[start, count] = process.submit(memory_after, chosen, tmp_path / f"{count}").result()
    for start in ("first", "second"):
        assert (sizes[start, _MANY] - sizes[start, _FEW]) / (_MANY - _FEW) < _MOST_BYTES
