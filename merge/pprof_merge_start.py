"""The start of the command `pprof-merge`, which takes longer than merging ten profiles: what makes it short.

It is not a part of `pprof_merge`, since it has to come before all imports of that package.
"""

from __future__ import annotations

import gc
import os


def main() -> int:
    """Runs the command; returns its exit status."""
    # NumPy's linear algebra, which nothing here uses, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported stays, and what the command makes is freed without it: a search for garbage finds none.
    gc.disable()
    from pprof_merge.cli import main as run  # noqa: PLC0415 - see above

    try:
        return run()
    finally:
        gc.freeze()  # nor does the interpreter look through all of it as it ends
