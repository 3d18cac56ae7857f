"""Measuring what it costs to decode and merge one input.

A process of its own reads the file and prints the outcome, so that its peak memory is due to that input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.forked import Forked, Forks, serve_forks

_FORKS: Final = Forks("from tests.merge import intake; intake.serve()")
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
    output, errors = Forked(_FORKS, [file]).written(timeout=120)
    assert not errors, errors
    return Intake(*json.loads(output))


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


def serve() -> None:
    """Run the process that those which take an input are forked from."""

    def main(arguments: list[str]) -> int:
        json.dump(_take(Path(arguments[0]).read_bytes()), sys.stdout)
        return 0

    serve_forks(main, "pprof_merge")
