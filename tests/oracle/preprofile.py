"""Reading a profile as Go's compiler does, by `go tool preprofile`, which runs the same code."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.oracle.oracle import RefusalError, go_tool

if TYPE_CHECKING:
    from pathlib import Path


def preprofile(profile: bytes, folder: Path) -> bytes:
    """Return call edges with their weights, the heaviest first. Raises RefusalError if a build would fail."""
    given, made = folder / "given.pgo", folder / "made.preprofile"
    given.write_bytes(profile)
    finished = subprocess.run(
        [go_tool("preprofile"), "-i", given, "-o", made], capture_output=True, text=True, check=False
    )
    if finished.returncode:
        raise RefusalError(finished.stderr.strip())
    return made.read_bytes()
