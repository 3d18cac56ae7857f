"""Libraries in C that processes under test load before their own, to change what the system does for them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def build_preload(source: Path, folder: Path) -> Path:
    """Compile a file of C into `folder`; return the library. Raises FileNotFoundError if there is no gcc."""
    if shutil.which("gcc") is None:
        raise FileNotFoundError("gcc is not installed")
    library = folder / f"{source.stem}.so"
    flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *flags, "-o", str(library), str(source)], check=True)
    return library
