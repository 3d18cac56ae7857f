"""The running kernel's functions: what an address in it belongs to."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from pgo_agent.native.elf import build_id_of_notes
from pgo_agent.native.recording import Frame, Mapping

# As perf calls it.
_FILE = "[kernel.kallsyms]"
_TEXT = frozenset("tTwW")


class Kernel:
    """The kernel as it shows itself to this process: without rights, it has no addresses, and no names."""

    def __init__(
        self, symbols: Path = Path("/proc/kallsyms"), notes: Path = Path("/sys/kernel/notes")
    ) -> None:
        named = sorted(
            (int(address, 16), name.split("\t", 1)[0])
            for address, kind, name in (line.split(" ", 2) for line in symbols.read_text().splitlines())
            if kind in _TEXT
        )
        self._starts = [address for address, _ in named]
        self._names = [name for _, name in named]
        ends = {name: address for address, name in named if name in {"_text", "_etext"}}
        start, end = ends.get("_text", 0), ends.get("_etext", 0)
        build_id = build_id_of_notes(notes.read_bytes()) if notes.exists() else ""
        self._mapping = Mapping(_FILE, build_id, start, end - start, start)

    def frame(self, address: int) -> Frame:
        """The frame at an address of the kernel; modules have names, and no mapping."""
        at = bisect_right(self._starts, address) - 1
        # Where addresses are hidden, all of them are 0.
        symbol = self._names[at] if at >= 0 and self._starts[at] else ""
        mapping = self._mapping
        inside = mapping.start <= address < mapping.start + mapping.size
        return Frame(address, mapping if inside else None, symbol)
