"""Signatures of events, as Standard Webhooks has them (https://www.standardwebhooks.com/, symmetric, v1)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from pgo_collector.errors import SecretUnusable

_PREFIX = "whsec_"
_SIZES = range(24, 65)  # bytes, as the specification has them


def read_secrets(path: Path) -> list[bytes]:
    """The secrets of a file, one a line. Raises SecretUnusable, which quotes nothing of a line."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't ASCII"
        raise SecretUnusable(f"webhook secrets {path}: {reason}") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise SecretUnusable(f"webhook secrets {path}: there is none")
    return [_secret(line, f"webhook secrets {path}, line {number}") for number, line in lines]


def _secret(line: str, where: str) -> bytes:
    try:
        secret = base64.b64decode(line.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        secret = b""
    if not line.startswith(_PREFIX) or len(secret) not in _SIZES:
        raise SecretUnusable(f"{where}: a secret is {_PREFIX} and the base64 of 24 to 64 bytes")
    return secret


def signed(id_: str, body: bytes, seconds: int, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of an attempt at that time, in s since 1970; with one signature by each secret."""
    content = f"{id_}.{seconds}.".encode() + body
    digests = [hmac.digest(secret, content, hashlib.sha256) for secret in secrets]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }
