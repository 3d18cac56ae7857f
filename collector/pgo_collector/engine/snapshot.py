"""Rows on disk, so that a worker needn't decode again what one before it has.

A snapshot is a cache: one that is damaged, or another version's, is as good as none. It holds a pickle, of
which only the engine's own classes and NumPy's arrays are taken; what else a pickle can do is refused.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

from pgo_collector.engine.rows import Rows

_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.numeric", "_frombuffer"),
}
_OURS = ("pprof_merge.", "pgo_collector.engine.rows")
_DIGEST = hashlib.blake2b


def save(rows: Rows, engine: str, path: Path) -> None:
    """Writes the rows, made by that version of the engine, in place of what is there. Raises OSError."""
    content = pickle.dumps((engine, rows), protocol=5)
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            file.write(_DIGEST(content).digest())
            file.write(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(engine: str, path: Path) -> Rows | None:
    """The rows, None where there are none that this version can use."""
    try:
        whole = memoryview(path.read_bytes())
    except OSError:
        return None
    size = _DIGEST().digest_size
    if _DIGEST(whole[size:]).digest() != whole[:size]:
        return None
    try:
        made_by, rows = _Unpickler(io.BytesIO(whole[size:])).load()
    except Exception:  # noqa: BLE001 - there is no end to what a pickle that isn't ours can raise
        return None
    return rows if made_by == engine and isinstance(rows, Rows) else None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        if module.startswith(_OURS):
            found = super().find_class(module, name)
            # What our modules import is not ours.
            if isinstance(found, type) and found.__module__.startswith(_OURS):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a snapshot")
