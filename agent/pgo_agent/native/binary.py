"""Where the file of a mapping can be read: processes in containers have their own at the same paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pgo_agent.errors import NotReadable
from pgo_agent.native.elf import Elf
from pgo_agent.native.recording import Mapping


def places_of(file: str, pids: Iterable[int]) -> Iterator[Path]:
    """Its path, here and then as each of these processes sees it; nothing may be there, or another file."""
    yield Path(file)
    for pid in pids:
        yield Path(f"/proc/{pid}/root{file}")


def as_seen_by(pid: int, mapping: Mapping) -> Mapping:
    """The mapping, with the build id of the file that its process sees if that isn't the one here."""
    here, there = places_of(mapping.file, [pid])
    with suppress(NotReadable, OSError):
        if not (here.exists() and here.samefile(there)):
            return replace(mapping, build_id=Elf.read(there).build_id)
    return mapping
