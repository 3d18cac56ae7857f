"""The Go toolchain of this environment, kept from looking at anything outside it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.oracle.oracle import GO, go_environment

ROOT: Final = Path(__file__).parent
# Neither a C compiler nor version control has a say in what is built here.
ENVIRONMENT: Final = go_environment() | {
    "GOFLAGS": "-mod=mod -buildvcs=false -trimpath",
    "CGO_ENABLED": "0",
}


def go(*arguments: str | Path, program: str = "workload", command: str | Path = GO) -> str:
    """Output and messages of `go ...` in the folder of a program here; fails if go does."""
    done = subprocess.run(
        [command, *arguments],
        cwd=ROOT / program,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"go {' '.join(map(str, arguments))}:\n{done.stdout}"
    return done.stdout
