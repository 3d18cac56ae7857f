"""Sample with bpftrace. It needs no kernel headers, since the kernel describes itself (BTF)."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

from pgo_agent.backends.backend import SamplingRequest
from pgo_agent.backends.profiler_process import ProfilerProcess
from pgo_agent.backends.rights import missing_rights
from pgo_agent.errors import ToolFailed
from pgo_agent.native import BY_FRAME_POINTERS, MemoryMaps, Recording, Stack

# A script can copy 200 bytes of a stack at most, which are too few to unwind it.
ONLY_FRAME_POINTERS = (
    f"{BY_FRAME_POINTERS}: bpftrace can't do without, so use bcc or perf for programs that lack them"
)
# What a script knows of the current process: the one that it was forked from, 0 if it has run another program
# since. A forked process has the file of its executable opened by its parent.
PARENT = (
    "(curtask->mm->exe_file == curtask->group_leader->real_parent->mm->exe_file "
    "? curtask->group_leader->real_parent->tgid : 0)"
)
# Prints "started" once all probes are attached, which may take a while, and counts only from then on. Prints
# the pid of each process and of its parent when it is first sampled, so that their memory maps can be read
# while they run. Once the probes are detached, prints from when to when it counted: on a busy machine the
# agent reads "started" late, and bpftrace the signal to end.
_PROGRAM = """
interval:ms:10 /@from == 0/ {{ @from = nsecs; printf("started\\n"); }}
profile:hz:{frequency} /@from != 0 && ({condition})/ {{
    if (@seen[pid] == 0) {{ @seen[pid] = 1; printf("%d %d\\n", pid, {parent}); }}
    @stacks[pid, tid, kstack(perf), ustack(perf), comm] = count();
}}
END {{ printf("sampled %lu %lu\\n", @from, nsecs); clear(@from); clear(@seen); }}
"""
_ENVIRONMENT = {
    "BPFTRACE_MAP_KEYS_MAX": "131072",
    # Only addresses are used; looking up symbols can take bpftrace longer than the capture.
    "BPFTRACE_NO_USER_SYMBOLS": "1",
}
_KEY = re.compile(
    r"(?P<pid>\d+),(?P<thread>\d+),(?P<kernel>(?:\n\t.*)*)\n?,(?P<user>(?:\n\t.*)*)\n?,(?P<comm>(?s:.*))"
)
_ADDRESS = re.compile(r"\n\t([0-9a-f]{1,16}) ")
_BTF = Path("/sys/kernel/btf/vmlinux")


@dataclass(frozen=True, slots=True)
class Bpftrace:
    """The bpftrace backend; `program` is the path or name of bpftrace."""

    program: str = "bpftrace"
    name: str = "bpftrace"

    @property
    def is_shared(self) -> bool:
        """Return False: each capture runs a process of its own."""
        return False

    def record(self, request: SamplingRequest, duration: float, until: Event) -> Recording:
        """Sample as `Backend` documents."""
        condition = " || ".join(f'curtask->group_leader->comm == "{name}"' for name in request.names)
        text = _PROGRAM.format(frequency=request.frequency, condition=condition, parent=PARENT)
        output = _Output()
        command = (self.program, "-q", "-f", "json", "-B", "line", "-e", text)
        with ProfilerProcess(self.name, command, output.add_line, _ENVIRONMENT) as process:
            process.run(duration, until, before_end=output.maps.read_again)
        began, lasted = output.time()
        samples = ((stack, count, count * request.period) for stack, count in output.stacks())
        recording = Recording.from_samples(began, lasted, request.period, samples)
        return replace(recording, lost_stacks=output.lost_stacks, followed=ONLY_FRAME_POINTERS)

    def obstacles(self) -> list[str]:
        """Return the obstacles, as `Backend` documents."""
        found = []
        if shutil.which(self.program) is None:
            found.append(f"{self.program} is not installed: apt-get install bpftrace")
        if os.geteuid():
            found.append("it works only as root")
        else:
            found += missing_rights("CAP_SYS_ADMIN")
        if not _BTF.exists():
            found.append(f"the kernel has no {_BTF}: use a kernel built with CONFIG_DEBUG_INFO_BTF")
        return found


class _Output:
    """The output of bpftrace: a JSON object on each line."""

    def __init__(self) -> None:
        self.maps = MemoryMaps()
        self.lost_stacks = 0
        self._counts: dict[str, int] = {}
        self._from = self._to = 0

    def add_line(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        text = line.decode(errors="surrogateescape")
        message = json.loads(text, strict=False, object_pairs_hook=_added_up)
        if message["type"] == "printf":
            first, second = message["data"].split()[-2:]
            if message["data"].startswith("sampled"):
                self._from, self._to = int(first), int(second)
            else:
                self.maps.read(int(first), int(second))
        elif message["type"] == "map":
            self._counts = message["data"].get("@stacks", {})

    def time(self) -> tuple[int, int]:
        """Return when it began to count samples (ns since 1970), and for how long it did (ns)."""
        if self._from == 0:  # it was stopped before
            return time.time_ns(), 0
        return time.time_ns() - (time.monotonic_ns() - self._from), self._to - self._from

    def stacks(self) -> Iterator[tuple[Stack, int]]:
        """Yield each stack with its number of samples. Raises ToolFailed for an unknown format."""
        for key, count in self._counts.items():
            parts = _KEY.fullmatch(key)
            if parts is None:
                raise ToolFailed("bpftrace", f"it printed a stack in an unknown format: {key!r}")
            pid = int(parts["pid"])
            kernel, user = (
                [int(address, 16) for address in _ADDRESS.findall(parts[name])] for name in ("kernel", "user")
            )
            frames = self.maps.frames(pid, kernel, user)
            if self.maps.is_lost(pid, kernel, user):
                self.lost_stacks += count
            yield Stack(parts["comm"], pid, int(parts["thread"]), frames), count


def _added_up(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Stacks that bpftrace can't look up have the same key, and a count each."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = found[key] + value if key in found else value
    return found
