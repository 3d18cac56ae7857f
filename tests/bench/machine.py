"""The machine and the versions that were measured, for the report."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.oracle.oracle import GO, go_environment


def stamp() -> str:
    """Return one line: date, processor, load, versions."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    model = models[0].split(":")[1].strip() if models else platform.machine()
    go = subprocess.run([GO, "version"], env=go_environment(), check=True, capture_output=True, text=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "librt", "isal", "deflate"))
    return (
        f"{dt.datetime.now(dt.UTC).date()}: {model}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, load {os.getloadavg()[0]:.1f} at the start. "
        f"Python {platform.python_version()}, {versions}; {go.stdout.split()[2]}."
    )
