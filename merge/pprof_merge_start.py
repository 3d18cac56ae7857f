"""The start of the command `pprof-merge`, which takes longer than merging ten profiles: what makes it short.

It is not a part of `pprof_merge`, since it has to come before all imports of that package.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Runs the command, and ends the process with its exit status."""
    # NumPy's linear algebra, which nothing here uses, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What is imported stays, and what the command makes is freed without it: a search for garbage finds none.
    gc.disable()
    from pprof_merge.command.cli import main as run  # noqa: PLC0415 - see above

    status = run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what the interpreter would clear away, object by object, goes with the process
