"""Small programs under the killer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.killer import Killer, Mode


class Program:
    """A Python program that runs in a folder under the killer."""

    def __init__(self, folder: Path, library: Path, source: str) -> None:
        self.folder = folder / "watched"
        self.folder.mkdir()
        self.script = folder / "program.py"
        self.script.write_text(source)
        self.killer = Killer(library, folder / "control", self.folder)

    def run(self, mode: Mode, target: int = 0, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        self.killer.arm_next_start(mode, target)
        command = [sys.executable, str(self.script), str(self.folder), *arguments]
        environment = os.environ | self.killer.environment
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, check=False)
