"""The secret that sessions are signed with: random, in the data folder, so that they outlive a restart."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pgo_collector.store.folder import sync_folder

_BYTES = 32


def session_secret(path: Path) -> bytes:
    """What the file holds, made with mode 0600 if it is missing or isn't whole. Raises OSError."""
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        secret = b""
    if len(secret) == _BYTES:
        return secret
    secret, part = secrets.token_bytes(_BYTES), path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)
    return secret
