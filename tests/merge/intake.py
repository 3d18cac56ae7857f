"""What it costs to take in one input, whoever made it.

As a program, `intake.py FILE`, it takes the file in and prints what came of it: a process of its own, so
that the peak of its memory is that input's.
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
    """`result` is TAKEN, MALFORMED, or the name of the limit; `words` are those of the refusal.

    `seconds` are of CPU, `memory` is in bytes: by how much the peak grew.
    """

    result: str
    words: str
    seconds: float
    memory: int


def intake(data: bytes, folder: Path) -> Intake:
    """Takes in the bytes of a file; the folder is for the file."""
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
    """The most memory that this process has had; ru_maxrss would count its parent too."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


if __name__ == "__main__":
    json.dump(_take(Path(sys.argv[1]).read_bytes()), sys.stdout)
