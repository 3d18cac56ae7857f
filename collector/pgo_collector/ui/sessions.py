"""Sessions: what a browser holds in place of a key. Nothing is kept of them here.

A session names its key's fingerprint and when it ends, and is signed with the server's secret over the key's
digest. It is worth nothing without the server, and ends with the key: what isn't in the keys file any more
has no digest to check with.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from pgo_collector.http.keys import Key, KeyFile
from pgo_collector.store.folder import sync_folder

_TOKEN = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions of the keys of a file, for so many seconds each."""

    keys: KeyFile
    secret: bytes
    seconds: int

    def begin(self, key: Key) -> str:
        """A session of a key, from now on."""
        ends = str(int(time.time()) + self.seconds)
        return f"{key.fingerprint}.{ends}.{self._signature(key, ends)}"

    def key_of(self, token: str) -> Key | None:
        """The key of a session that goes on, if it is still one of the file's."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        fingerprint, ends, signature = found.groups()
        for key in self.keys.keys.keys:
            is_signed = key.fingerprint == fingerprint and hmac.compare_digest(
                self._signature(key, ends), signature
            )
            if is_signed and int(ends) > time.time():
                return key
        return None

    def _signature(self, key: Key, ends: str) -> str:
        return hmac.new(self.secret, key.digest + ends.encode(), "sha256").hexdigest()


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
