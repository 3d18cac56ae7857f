"""Merges profiles, so that gcc counts what the engine does: `hatch_build.py` compiles it by these counts.

What runs here is what `pprof-merge` runs, with the formats `pprof` and `go`, in one process and in two.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

# Tables are seeded, so that nobody can send what collides; counts are to be the same each time.
os.urandom = lambda size: bytes(range(1, size + 1))

from pprof_merge import ENGINE, FORMATS, Limits  # noqa: E402 - the seed is drawn when it is imported
from pprof_merge.merging import Batch  # noqa: E402

# Profiles of a fleet are mostly of stacks that others had before.
_ROUNDS = 8


def main() -> None:
    """Merge all profiles of the folder that is named."""
    if ENGINE != "compiled":
        raise SystemExit("the engine to train is not compiled")
    bodies = [file.read_bytes() for file in sorted(Path(sys.argv[1]).glob("*.pb.gz"))]
    if not bodies:
        raise SystemExit(f"{sys.argv[1]}: no profiles to train the engine with")
    few, many = Batch(Limits.none()), Batch(Limits.none())
    for body in bodies:
        few.read(body)
    for body in bodies * _ROUNDS:
        many.read(body)
    many.absorb(pickle.loads(pickle.dumps(few)))  # noqa: S301 - our own bytes
    for batch in (few, many):
        for name in ("pprof", "go"):
            wanted = FORMATS[name]
            wanted.write(batch.merge(wanted.depth))


if __name__ == "__main__":
    main()
