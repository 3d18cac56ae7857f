"""Keys: one a line of a file, held only as digests, read again while the server runs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog

from pgo_collector.errors import KeysUnreadable

_RELOAD_SECONDS = 1.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KeySet:
    """The sha256 digests of keys. A digest is as long for every key, so no comparison tells a length."""

    digests: tuple[bytes, ...]

    @classmethod
    def parse(cls, text: bytes) -> KeySet:
        """One key a line, trimmed; blank lines are dropped."""
        keys = (line.strip() for line in text.splitlines())
        return cls(tuple(dict.fromkeys(hashlib.sha256(key).digest() for key in keys if key)))

    def match(self, key: bytes) -> str | None:
        """The fingerprint of `key` if it is one of these, else None.

        Every key is compared, each in constant time, so the time taken doesn't say which one matched.
        """
        offered = hashlib.sha256(key).digest()
        matched = False
        for digest in self.digests:
            matched |= hmac.compare_digest(digest, offered)
        return fingerprint(key) if matched else None


def fingerprint(key: bytes) -> str:
    """What logs say in place of a key: the first 12 hex digits of its sha256."""
    return hashlib.sha256(key).hexdigest()[:12]


class KeyFile:
    """The keys of one file, as it is now or as it last could be read."""

    def __init__(self, path: Path) -> None:
        """Raises KeysUnreadable, which names the file."""
        self._path = path
        try:
            self._text = path.read_bytes()
        except OSError as error:
            raise KeysUnreadable(f"keys file {path}: {error.strerror}") from error
        self._readable = True
        self.keys = KeySet.parse(self._text)

    async def follow(self) -> NoReturn:
        """Takes over what the file says, about a second after it changed; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            await asyncio.to_thread(self._reload)

    def _reload(self) -> None:
        try:
            text = self._path.read_bytes()
        except OSError as error:
            if self._readable:
                _log.error("keys unreadable, the last ones stay", file=str(self._path), reason=error.strerror)
            self._readable = False
            return
        if text != self._text or not self._readable:
            self._text, self.keys, self._readable = text, KeySet.parse(text), True
            _log.info("keys read", file=str(self._path), count=len(self.keys.digests))


def new_key() -> str:
    """A key of 256 random bits, without characters that a shell or a header would mind."""
    return secrets.token_urlsafe(32)


def append_key(path: Path, key: str) -> None:
    """Adds a line to a keys file, made with mode 0600 if it is missing. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        unfinished = False
        if end:
            file.seek(end - 1)
            unfinished = file.read(1) != b"\n"
        file.write(b"\n" * unfinished + key.encode() + b"\n")
