"""The entry point of the command `pprof-merge`, which sets up the process so that it starts and ends fast.

It is not in the package `pprof_merge`, because it must run before that package is imported.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command, and end the process with its exit status."""
    # Where NumPy is needed, its linear algebra, which isn't, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The command makes no reference cycles worth collecting, so searching for them only takes time.
    gc.disable()
    from pprof_merge.command.cli import main as run  # noqa: PLC0415 - see above
    from pprof_merge.streams import open_standard_streams  # noqa: PLC0415

    open_standard_streams()
    status = run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # skips freeing objects one by one, which the end of the process does at once
