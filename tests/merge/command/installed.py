"""The installed command `pprof-merge`, run in a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PPROF_MERGE = Path(sys.executable).parent / "pprof-merge"


def pprof_merge(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command with these arguments until it ends; return its output and exit status."""
    return subprocess.run([PPROF_MERGE, *arguments], input=stdin, capture_output=True, check=False)
