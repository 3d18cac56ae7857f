"""The keys of a file, held only as digests, read again while the server runs."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog

from pgo_collector.errors import KeyMalformed, KeysUnreadable
from pgo_collector.http.key import Key, digest_of

_RELOAD_SECONDS = 1.0
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys, and what is to be said of the lines that they come from; lines are counted from 1."""

    keys: tuple[Key, ...]
    malformed: Mapping[int, str]  # the lines without a key in them, and why
    with_blanks: tuple[int, ...]  # the lines whose key has blanks in it, maybe since a field is misspelled

    @classmethod
    def parse(cls, text: bytes) -> KeySet:
        """One key a line, see `Key.parse`; blank lines are dropped, and so is a key that is there again."""
        keys: dict[bytes, Key] = {}
        malformed: dict[int, str] = {}
        with_blanks = []
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.strip()
            if not line:
                continue
            try:
                key = Key.parse(line)
            except KeyMalformed as error:
                malformed[number] = str(error)
                continue
            if keys.setdefault(key.digest, key) != key:
                malformed[number] = "the key is in a line above, with other fields"
            if len(line.split()) > 1 and key.digest == digest_of(line):
                with_blanks.append(number)
        return cls(tuple(keys.values()), malformed, tuple(with_blanks))

    def match(self, offered: bytes) -> Key | None:
        """The key that was offered, if it is one of these.

        Every key is compared, each in constant time, so the time taken doesn't say which one matched.
        """
        digest = digest_of(offered)
        matching = [key for key in self.keys if hmac.compare_digest(key.digest, digest)]
        return matching[0] if matching else None


class KeyFile:
    """The keys of one file, as it is now or as it last could be used."""

    def __init__(self, path: Path) -> None:
        """Raises KeysUnreadable and KeyMalformed, which name the file, and the latter the lines."""
        self._path = path
        try:
            self._text = path.read_bytes()
        except OSError as error:
            raise KeysUnreadable(f"keys file {path}: {error.strerror}") from error
        self._readable = True
        self.keys = KeySet.parse(self._text)
        if faults := [f"line {line}: {reason}" for line, reason in self.keys.malformed.items()]:
            raise KeyMalformed(f"keys file {path}: {'; '.join(faults)}")
        self._warn_of_blanks(self.keys)

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
            self._text, self._readable = text, True
            self._take_over(KeySet.parse(text))

    def _take_over(self, keys: KeySet) -> None:
        """What is right counts, and if no line is, what was: a slip must not lock everybody out."""
        file = str(self._path)
        for line, reason in keys.malformed.items():
            _log.error("key malformed, its line is skipped", file=file, line=line, reason=reason)
        self._warn_of_blanks(keys)
        if keys.malformed and not keys.keys:
            _log.error("no line has a key, the last ones stay", file=file)
            return
        self.keys = keys
        _log.info("keys read", file=file, count=len(keys.keys))

    def _warn_of_blanks(self, keys: KeySet) -> None:
        for line in keys.with_blanks:
            _log.warning("key with blanks in it", file=str(self._path), line=line)


def append_line(path: Path, line: str) -> None:
    """Adds a line to a keys file, made with mode 0600 if it is missing. Raises KeysUnreadable."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            unfinished = False
            if end:
                file.seek(end - 1)
                unfinished = file.read(1) != b"\n"
            file.write(b"\n" * unfinished + line.encode() + b"\n")
    except OSError as error:
        raise KeysUnreadable(f"keys file {path}: {error.strerror}") from error
