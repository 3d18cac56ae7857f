"""Samples by bpftrace, which needs no kernel headers: the kernel describes itself (BTF)."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pgo_agent.backends.backend import Wanted
from pgo_agent.backends.child import Child
from pgo_agent.errors import ToolFailed
from pgo_agent.native.layouts import Layouts
from pgo_agent.native.recording import Recording, Stack

# Says that all is attached, which may take a while, before it counts; and the id of each process when it is
# first seen, so that its layout can be read while it is there.
_PROGRAM = """
interval:ms:10 /@on == 0/ {{ @on = 1; printf("started\\n"); }}
profile:hz:{frequency} /@on == 1 && ({condition})/ {{
    if (@seen[pid] == 0) {{ @seen[pid] = 1; printf("%d\\n", pid); }}
    @stacks[pid, tid, kstack(perf), ustack(perf), comm] = count();
}}
END {{ clear(@on); clear(@seen); }}
"""
_ENVIRONMENT = {
    "BPFTRACE_MAP_KEYS_MAX": "131072",
    # Only addresses are read, and to look for symbols may take it longer than the capture.
    "BPFTRACE_NO_USER_SYMBOLS": "1",
}
_KEY = re.compile(
    r"(?P<pid>\d+),(?P<thread>\d+),(?P<kernel>(?:\n\t.*)*)\n?,(?P<user>(?:\n\t.*)*)\n?,(?P<comm>(?s:.*))"
)
_ADDRESS = re.compile(r"\n\t([0-9a-f]{1,16}) ")
_BTF = Path("/sys/kernel/btf/vmlinux")


@dataclass(frozen=True, slots=True)
class Bpftrace:
    """`program` is bpftrace."""

    program: str = "bpftrace"
    name: str = "bpftrace"

    def record(self, wanted: Wanted, duration: float, until: Event) -> Recording:
        """See Backend."""
        condition = " || ".join(f'curtask->group_leader->comm == "{name}"' for name in wanted.names)
        text = _PROGRAM.format(frequency=wanted.frequency, condition=condition)
        heard = _Heard()
        command = (self.program, "-q", "-f", "json", "-B", "line", "-e", text)
        with Child(self.name, command, heard.hear, _ENVIRONMENT) as child:
            began, lasted = child.run(duration, until, before_end=heard.layouts.look_again)
        samples = ((stack, count, count * wanted.period) for stack, count in heard.stacks())
        return Recording.of(began, lasted, wanted.period, samples)

    def obstacles(self) -> list[str]:
        """See Backend."""
        found = []
        if shutil.which(self.program) is None:
            found.append(f"{self.program} is not installed: apt-get install bpftrace")
        if os.geteuid():
            found.append("it only runs as root")
        if not _BTF.exists():
            found.append(f"the kernel has no {_BTF}: it has to be built with CONFIG_DEBUG_INFO_BTF")
        return found


class _Heard:
    """What bpftrace prints: a JSON object a line."""

    def __init__(self) -> None:
        self.layouts = Layouts()
        self._counts: dict[str, int] = {}

    def hear(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return
        said = json.loads(line.decode(errors="surrogateescape"), strict=False)
        if said["type"] == "printf":
            self.layouts.look(int(said["data"]))
        elif said["type"] == "map":
            self._counts = said["data"].get("@stacks", {})

    def stacks(self) -> Iterator[tuple[Stack, int]]:
        """Each stack, and how often it was seen. Raises ToolFailed if a key is not as it is to be."""
        for key, count in self._counts.items():
            parts = _KEY.fullmatch(key)
            if parts is None:
                raise ToolFailed("bpftrace", f"it printed a stack in a way of its own: {key!r}")
            pid = int(parts["pid"])
            kernel, user = (
                [int(address, 16) for address in _ADDRESS.findall(parts[name])] for name in ("kernel", "user")
            )
            frames = self.layouts.frames(pid, kernel, user)
            yield Stack(parts["comm"], pid, int(parts["thread"]), frames), count
