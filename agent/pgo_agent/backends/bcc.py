"""Samples by bcc: a program of ours, bcc_program, run by the Python that bcc is installed in."""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple

from pgo_agent.backends.backend import Wanted
from pgo_agent.backends.child import Child
from pgo_agent.native.layouts import Layouts
from pgo_agent.native.recording import Recording, Stack

_log = logging.getLogger(__name__)
_PROGRAM = Path(__file__).with_name("bcc_program.py")


@dataclass(frozen=True, slots=True)
class Bcc:
    """`program` is the Python that has bcc's module: that of the distribution."""

    program: str = "/usr/bin/python3"
    name: str = "bcc"

    def record(self, wanted: Wanted, duration: float, until: Event) -> Recording:
        """See Backend."""
        heard = _Heard()
        command: tuple[str | Path, ...] = (self.program, "-I", _PROGRAM, str(wanted.frequency), *wanted.names)
        with Child(self.name, command, heard.hear) as child:
            began, lasted = child.run(duration, until, before_end=heard.layouts.look_again)
        samples = ((stack, count, count * wanted.period) for stack, count in heard.stacks())
        return Recording.of(began, lasted, wanted.period, samples)

    def obstacles(self) -> list[str]:
        """See Backend."""
        found = []
        if not _has_bcc(self.program):
            found.append(f"{self.program} has no module bcc: apt-get install python3-bpfcc")
        if os.geteuid():
            found.append("it has to run as root")
        release = platform.release()
        missing = [
            str(folder)
            for folder in (Path(f"/lib/modules/{release}/{name}") for name in ("build", "source"))
            if not folder.is_dir()
        ]
        if missing:
            found.append(
                f"the headers of kernel {release} are missing: apt-get install linux-headers-{release}, "
                f"or link {' and '.join(missing)} to those of a kernel close to it"
            )
        return found


class _Counted(NamedTuple):
    pid: int
    thread: int
    comm: str
    samples: int
    kernel: list[int]
    user: list[int]


class _Heard:
    """What the program prints: a JSON list a line, whose first item says what it is about."""

    def __init__(self) -> None:
        self.layouts = Layouts()
        self._stacks: list[_Counted] = []

    def hear(self, line: bytes) -> None:
        about, *said = json.loads(line)
        if about == "process":
            self.layouts.look(*said)
        elif about == "stack":
            self._stacks.append(_Counted(*said))
        else:
            _log.warning("bcc lost %d samples", *said)

    def stacks(self) -> Iterator[tuple[Stack, int]]:
        """Each stack, and how often it was seen."""
        for of in self._stacks:
            yield (
                Stack(of.comm, of.pid, of.thread, self.layouts.frames(of.pid, of.kernel, of.user)),
                of.samples,
            )


def _has_bcc(python: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the operator says which programs there are
            [python, "-I", "-c", "import importlib.util as u; raise SystemExit(u.find_spec('bcc') is None)"],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0
