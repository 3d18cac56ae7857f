"""A terminal, for commands that show more to a person than to a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
from pathlib import Path


def on_terminal(*command: str | Path, output_too: bool = False) -> tuple[int, bytes]:
    """Run a command whose messages go to a terminal; return its exit status and what the terminal showed."""
    terminal, its_end = pty.openpty()
    termios.tcsetwinsize(its_end, (24, 80))
    shown = b""
    stdout = its_end if output_too else subprocess.DEVNULL
    with subprocess.Popen(command, stdout=stdout, stderr=its_end) as process:
        os.close(its_end)
        try:
            while chunk := os.read(terminal, 4096):
                shown += chunk
        except OSError:
            pass  # so Linux says that the other end of a terminal is closed
        finally:
            os.close(terminal)
        return process.wait(), shown
