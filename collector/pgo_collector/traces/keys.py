"""Trace keys: the secrets that sign requests which are to be traced, one on each line of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import structlog

from pgo_collector.errors import KeyMalformed
from pgo_collector.reloaded_file import ReloadedKeys

# What documentation and examples have: OSProfiler's own, and what people put in their place.
_WELL_KNOWN = {b"secret_key", b"secret-key", b"osprofiler_secret", b"changeme", b"change-me-please"}
_LEAST_BYTES = 16
_log = structlog.get_logger()


class TraceKeys(ReloadedKeys):
    """The trace keys of one file, as it is now or as it was when all its lines were last usable."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises KeysUnreadable, and KeyMalformed if a line isn't a key or there is none."""
        super().__init__(path)
        self.keys = read_trace_keys(path, self.text)

    def replace(self, text: bytes) -> None:
        """Use the keys of the file, if all its lines are keys."""
        try:
            self.keys = read_trace_keys(self.path, text)
        except KeyMalformed as error:
            _log.error("trace keys malformed", reason=str(error))
        else:
            _log.info("trace keys read", file=str(self.path), count=len(self.keys))


def read_trace_keys(path: Path, text: bytes) -> tuple[bytes, ...]:
    """Return the keys in the text of a file, in its order. Raises KeyMalformed, which quotes none."""
    keys = tuple(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if not keys:
        raise KeyMalformed(
            f"trace keys file {path}: it has no key; add one with `pgo-collector keys new {path}`"
        )
    if faults := [*_faults(text)]:
        raise KeyMalformed(f"trace keys file {path}: {'; '.join(faults)}")
    return keys


def _faults(text: bytes) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        key = line.strip()
        if not key:
            continue
        if key.lower() in _WELL_KNOWN:
            yield f"line {number}: this key is in documentation, so anyone could sign with it"
        elif key.lower().startswith(b"sha256:"):
            yield f"line {number}: a digest can't sign; the key itself is needed"
        elif len(key) < _LEAST_BYTES:
            yield f"line {number}: a key has at least {_LEAST_BYTES} bytes"
        elif len(key.split()) > 1:
            yield f"line {number}: a key has no blanks in it, and no fields after it"
