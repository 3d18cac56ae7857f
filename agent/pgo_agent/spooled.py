"""A profile as a file in a spool: a SHA-256 of the rest, a line of JSON with the query, and the body."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pgo_agent.endpoint import Upload
from pgo_agent.errors import NotReadable

_DIGEST_LENGTH = 64


def pack(upload: Upload) -> bytes:
    """The content of the file."""
    rest = json.dumps(upload.query).encode() + b"\n" + upload.body
    return _digest(rest) + b"\n" + rest


def unpack(path: Path, content: bytes) -> Upload:
    """What was packed. Raises NotReadable, with the path, if not every byte is as it was."""
    digest, rest = content[:_DIGEST_LENGTH], content[_DIGEST_LENGTH + 1 :]
    if content[_DIGEST_LENGTH : _DIGEST_LENGTH + 1] != b"\n" or _digest(rest) != digest:
        raise NotReadable(path, "it is damaged: its digest is another")
    query, _, body = rest.partition(b"\n")
    return Upload(body, tuple((name, value) for name, value in json.loads(query)))


def _digest(rest: bytes) -> bytes:
    return hashlib.sha256(rest).hexdigest().encode()
