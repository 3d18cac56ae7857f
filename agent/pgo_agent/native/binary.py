"""Where the file of a mapping can be read: processes in containers have their own at the same paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def places_of(file: str, pids: Iterable[int]) -> Iterator[Path]:
    """Its path, here and then as each of these processes sees it; nothing may be there, or another file."""
    yield Path(file)
    for pid in pids:
        yield Path(f"/proc/{pid}/root{file}")
