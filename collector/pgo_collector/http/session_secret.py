"""The secret that signs sessions of the pages: a file that all collectors have, or one that each makes."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pgo_collector.blobs.files import sync_folder
from pgo_collector.errors import SecretUnusable

_BYTES = 32


def read_session_secret(path: Path) -> bytes:
    """Return the secret in a file that someone else made. Raises SecretUnusable."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise SecretUnusable(f"{path}: {error.strerror}") from error
    if len(secret) < _BYTES:
        raise SecretUnusable(f"{path}: the secret has {len(secret)} bytes, and must have {_BYTES} or more")
    return secret


def made_session_secret(path: Path) -> bytes:
    """Return the secret in a file; if it is missing or incomplete, make it with mode 0600. Raises OSError."""
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
