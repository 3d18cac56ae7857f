"""The Go toolchain of this environment, kept from looking at anything outside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAM: Final = Path(sys.executable).with_name("go")
ROOT: Final = Path(__file__).parent
# No C compiler, network, version control or other toolchain has a say in what is built here.
ENVIRONMENT: Final = {
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-mod=mod -buildvcs=false -trimpath",
    "GOPROXY": "off",
    "GOWORK": "off",
    "CGO_ENABLED": "0",
}


def go(*arguments: str | Path, program: str = "workload") -> str:
    """Output and messages of `go ...` in the folder of a program here; fails if go does."""
    done = subprocess.run(
        [PROGRAM, *arguments],
        cwd=ROOT / program,
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"go {' '.join(map(str, arguments))}:\n{done.stdout}"
    return done.stdout


def goroot() -> Path:
    """Where the toolchain and its own source code are."""
    return Path(go("env", "GOROOT").strip())
