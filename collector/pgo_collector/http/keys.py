"""A key: a line of a keys file. What is held of it is its digest, what it is called, and its scope."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NoReturn, Self

import structlog

from pgo_collector.errors import KeyMalformed, KeysUnreadable
from pgo_collector.model.series import SERVICE_PATTERN

_FIELDS = (b"name=", b"service=")
_DIGEST_PREFIX = b"sha256:"
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SERVICE = re.compile(SERVICE_PATTERN)


@dataclass(frozen=True, slots=True)
class Scope:
    """Patterns of the names of services, in which `*` is any text; that of a key that names none is `*`."""

    patterns: tuple[str, ...] = ("*",)

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Patterns with commas between them. Raises KeyMalformed, which doesn't quote the text."""
        patterns = text.split(",")
        if not all(_SERVICE.fullmatch(pattern.replace("*", "a")) for pattern in patterns):
            raise KeyMalformed(
                "service= takes names of services, or patterns with *, and commas between them"
            )
        return cls(tuple(dict.fromkeys(patterns)))

    def __str__(self) -> str:
        return ",".join(self.patterns)

    def includes(self, service: str) -> bool:
        """Whether a pattern matches the name.

        The service may be a pattern too, such as `*` for all of them: its `*` is matched only by another
        `*`, so the answer is yes only if the scope has every service that the pattern has.
        """
        return any(fnmatchcase(service, pattern) for pattern in self.patterns)

    @property
    def only(self) -> str | None:
        """The service, if the scope is the name of one."""
        first, *others = self.patterns
        return None if others or "*" in first else first


@dataclass(frozen=True, slots=True)
class Key:
    """Who calls, and for which services."""

    digest: bytes
    name: str | None = None
    scope: Scope = field(default_factory=Scope)

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """The key of a line that isn't blank. Raises KeyMalformed, which quotes nothing of the line.

        The line has fields if a word after the first begins with `name=` or `service=`: the key is then the
        first word, and all others are fields. If not, the key is the whole line, as pgo-fleet has it.
        """
        first, *others = line.split()
        if not any(word.startswith(_FIELDS) for word in others):
            return cls(_digest_said(line.strip()))
        if first.startswith(_FIELDS):
            raise KeyMalformed("there is no key before the fields")
        fields: dict[bytes, str] = {}
        for number, word in enumerate(others, 2):
            if not word.startswith(_FIELDS):
                raise KeyMalformed(f"word {number} is neither name= nor service=")
            which, _, value = word.partition(b"=")
            if which in fields:
                raise KeyMalformed(f"{which.decode()}= is there twice")
            fields[which] = value.decode("latin-1")
        return cls.of(_digest_said(first), fields.get(b"name"), fields.get(b"service"))

    @classmethod
    def of(cls, digest: bytes, name: str | None, scope: str | None) -> Self:
        """A key with what is in its fields, None for a field that isn't there. Raises KeyMalformed."""
        if name is not None and not _NAME.fullmatch(name):
            raise KeyMalformed("name= takes up to 63 letters, digits, '.', '_' and '-', none of these first")
        return cls(digest, name, Scope() if scope is None else Scope.parse(scope))

    def line(self, key: str | None = None) -> str:
        """The line of a keys file, with the key itself or, without it, its digest."""
        words = [key or f"{_DIGEST_PREFIX.decode()}{self.digest.hex()}"]
        if self.name is not None:
            words.append(f"name={self.name}")
        if self.scope != Scope():
            words.append(f"service={self.scope}")
        return " ".join(words)

    @property
    def fingerprint(self) -> str:
        """What logs say in place of the key: the first 12 hex digits of its sha256."""
        return self.digest.hex()[:12]


def digest_of(key: bytes) -> bytes:
    """What is held of a key. It is as long for every key, so no comparison tells a length."""
    return hashlib.sha256(key).digest()


def new_key() -> str:
    """A key of 256 random bits, without characters that a shell or a header would mind."""
    return secrets.token_urlsafe(32)


def _digest_said(text: bytes) -> bytes:
    """The digest that stands in a line, or that of the key that does."""
    if not text.lower().startswith(_DIGEST_PREFIX):
        return digest_of(text)
    written = _DIGEST.fullmatch(text)
    if written is None:
        raise KeyMalformed("after sha256: there have to be 64 hex digits")
    digest = bytes.fromhex(written[1].decode())
    if digest == digest_of(b""):
        raise KeyMalformed("this is the sha256 of nothing, which anybody could send")
    return digest


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

    async def run(self) -> NoReturn:
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
