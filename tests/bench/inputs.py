"""Makes the profiles that the benchmarks merge: real ones, each again and again with another time.

A program of its own, since a child's peak memory is never less than what its parent had when it began.
"""

from __future__ import annotations

import gzip
import sys
from itertools import cycle, islice
from pathlib import Path

from pprof_proto.profile_pb2 import Profile

MINUTE = 60 * 10**9


def make(sources: list[Path], count: int, folder: Path) -> None:
    """Writes `count` profiles to the folder, which go round the sources and follow one another in time."""
    folder.mkdir()
    for number, source in enumerate(islice(cycle(sources), count)):
        profile = Profile.FromString(gzip.decompress(source.read_bytes()))
        profile.time_nanos += number * MINUTE
        (folder / f"{number:04}.pb.gz").write_bytes(gzip.compress(profile.SerializeToString(), mtime=0))


if __name__ == "__main__":
    make([Path(name) for name in sys.argv[3:]], int(sys.argv[1]), Path(sys.argv[2]))
