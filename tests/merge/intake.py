"""Measuring what it costs to decode and merge one input.

The program `intake.py FILE` reads the file and prints the outcome. It is a process of its own, so that its
peak memory is due to that input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

TAKEN = "taken"
MALFORMED = "malformed"


class Intake(NamedTuple):
    """The outcome: `result` is TAKEN, MALFORMED or the name of a limit, `words` is the error message.

    `seconds` is CPU time, `memory` is the growth of the peak memory in bytes.
    """

    result: str
    words: str
    seconds: float
    memory: int


def intake(data: bytes, folder: Path) -> Intake:
    """Return what it costs to read a file with these bytes, which is written into the folder."""
    file = folder / "input"
    file.write_bytes(data)
    command = [sys.executable, __file__, str(file)]
    finished = subprocess.run(command, check=True, capture_output=True, timeout=120)
    return Intake(*json.loads(finished.stdout))


def _take(data: bytes) -> Intake:
    from pprof_merge import LimitExceeded, ProfileError, decode, merge  # noqa: PLC0415 - not for the parent

    before, began, result, words = _peak(), time.process_time(), TAKEN, ""
    try:
        merge([decode(data)])
    except LimitExceeded as error:
        result, words = error.limit, str(error)
    except ProfileError as error:
        result, words = MALFORMED, str(error)
    return Intake(result, words, time.process_time() - began, _peak() - before)


def _peak() -> int:
    """Return this process's peak memory in bytes; ru_maxrss would include its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


if __name__ == "__main__":
    json.dump(_take(Path(sys.argv[1]).read_bytes()), sys.stdout)
