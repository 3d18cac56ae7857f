"""The installed command `pprof-merge`, run in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.forked import Forked, Forks, serve_forks

PPROF_MERGE = Path(sys.executable).parent / "pprof-merge"
_FORKS: Final = Forks("from tests.merge.command import installed; installed.serve()")


def pprof_merge(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command with these arguments until it ends; return its output and exit status.

    The process is forked from one that has the command loaded.
    """
    command = Forked(_FORKS, arguments, stdin=stdin)
    output, errors = command.written(timeout=300)
    return subprocess.CompletedProcess(arguments, command.wait(), output, errors)


def serve() -> None:
    """Run the process that commands are forked from."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does; a fork has no other threads
    from pprof_merge.command.cli import main  # noqa: PLC0415 - only this process needs it

    serve_forks(main, "pprof_merge.analysis.build_report", "pprof_merge.formats.llvm")
