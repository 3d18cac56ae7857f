"""Keys: the lines of a keys file. Only a key's digest, its name and its scope stay in memory."""

from __future__ import annotations

import codecs
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from pgo_collector.errors import KeyMalformed, KeysUnreadable
from pgo_collector.model.series import Scope
from pgo_collector.reloaded_file import ReloadedKeys

_FIELDS = (b"name=", b"service=")
_DIGEST_PREFIX = b"sha256:"
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Key:
    """A key: the SHA-256 of its text, its name in logs and answers, and the services it is for.

    `fingerprint`, the first 12 hex digits of the SHA-256, is what logs show in place of the key.
    """

    digest: bytes
    name: str | None = None
    scope: Scope = field(default_factory=Scope)
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", self.digest.hex()[:12])

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Return the key of a line that isn't blank. Raises KeyMalformed, which doesn't quote the line.

        If a word after the first begins with `name=` or `service=`, the key is the first word, and all others
        must be fields. If not, the key is the whole line, as in pgo-fleet.
        """
        first, *others = line.split()
        if not _has_fields(others):
            return cls(_parse_digest(line.strip()))
        if first.startswith(_FIELDS):
            raise KeyMalformed("there is no key before the fields")
        fields: dict[bytes, str] = {}
        for number, word in enumerate(others, 2):
            if not word.startswith(_FIELDS):
                raise KeyMalformed(f"word {number} is neither name= nor service=")
            which, _, value = word.partition(b"=")
            if which in fields:
                raise KeyMalformed(f"{which.decode()}= is given twice")
            fields[which] = value.decode("latin-1")
        return cls.of(_parse_digest(first), fields.get(b"name"), fields.get(b"service"))

    @classmethod
    def of(cls, digest: bytes, name: str | None, scope: str | None) -> Self:
        """Return the key with these values of its fields, None for a missing field. Raises KeyMalformed."""
        if name is not None and not _NAME.fullmatch(name):
            raise KeyMalformed(
                "name= takes up to 63 letters, digits, '.', '_' and '-', and begins with a letter or digit"
            )
        return cls(digest, name, Scope() if scope is None else Scope.parse(scope))

    def line(self, key: str | None = None) -> str:
        """Return the line of a keys file, with the text of the key if it is given, else with its digest."""
        words = [key or f"{_DIGEST_PREFIX.decode()}{self.digest.hex()}"]
        if self.name is not None:
            words.append(f"name={self.name}")
        if self.scope != Scope():
            words.append(f"service={self.scope}")
        return " ".join(words)


def digest_of(key: bytes) -> bytes:
    """Return the SHA-256 of a key. All digests have one length, so comparing them reveals no key's length."""
    return hashlib.sha256(key).digest()


def new_key() -> str:
    """Return a new key of 256 random bits, with only characters that are safe in shells and headers."""
    return secrets.token_urlsafe(32)


def _has_fields(words: Sequence[bytes]) -> bool:
    """Return whether one of the words after the first of a line is a field."""
    return any(word.startswith(_FIELDS) for word in words)


def _parse_digest(text: bytes) -> bytes:
    """Return the digest that a line gives, or the digest of the key that it gives. Raises KeyMalformed."""
    if not text.lower().startswith(_DIGEST_PREFIX):
        return digest_of(text)
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise KeyMalformed("sha256: needs 64 hex digits after it")
    digest = bytes.fromhex(match[1].decode())
    if digest == digest_of(b""):
        raise KeyMalformed("this is the sha256 of an empty key, which anyone could send")
    return digest


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of a file, and the lines to log; line numbers begin at 1."""

    keys: tuple[Key, ...]
    malformed: Mapping[int, str]  # The lines that aren't used, and why.
    with_blanks: tuple[int, ...]  # The lines whose key has blanks in it, which may be a misspelled field.

    @classmethod
    def parse(cls, text: bytes) -> KeySet:
        """Return the keys in the text of a file, one for each line that isn't blank: see `Key.parse`."""
        keys: dict[bytes, Key] = {}
        malformed: dict[int, str] = {}
        with_blanks = []
        for number, raw in enumerate(text.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
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

    def match(self, text: bytes) -> Key | None:
        """Return the key with this text, or None. The text may be a whole line, with the key's fields.

        Clients send that by `$(head -n 1 FILE)`. Every key is compared, each in constant time, so the time
        taken doesn't reveal which one matched.
        """
        digest = digest_of(text)
        matching = [key for key in self.keys if hmac.compare_digest(key.digest, digest)]
        if matching:
            return matching[0]
        first, *others = text.split() or [text]
        return self.match(first) if _has_fields(others) else None


class KeyFile(ReloadedKeys):
    """The keys of one file, as it is now or as it was when it last had usable keys.

    `kind` is what they are for, such as submit. `others` are files with keys of other kinds, for the refusal
    of a key that was mistaken for one of these.
    """

    def __init__(self, path: Path, kind: str = "") -> None:
        """Read the file. Raises KeysUnreadable and KeyMalformed, which name the file and its bad lines."""
        super().__init__(path)
        self.kind = kind
        self.others: tuple[KeyFile, ...] = ()
        self.keys = KeySet.parse(self.text)
        if faults := [f"line {line}: {reason}" for line, reason in self.keys.malformed.items()]:
            raise KeyMalformed(f"keys file {path}: {'; '.join(faults)}")
        self._warn_of_blanks(self.keys)

    def replace(self, text: bytes) -> None:
        """Use the keys of all well-formed lines.

        If all lines are malformed, the keys stay as they were, so that a slip doesn't lock everyone out.
        """
        keys, file = KeySet.parse(text), str(self.path)
        for line, reason in keys.malformed.items():
            _log.error("key malformed", file=file, line=line, reason=reason)
        self._warn_of_blanks(keys)
        if keys.malformed and not keys.keys:
            _log.error("keys not replaced", file=file)
            return
        self.keys = keys
        _log.info("keys read", file=file, count=len(keys.keys))

    def _warn_of_blanks(self, keys: KeySet) -> None:
        for line in keys.with_blanks:
            _log.warning("key has blanks", file=str(self.path), line=line)


def append_line(path: Path, line: str) -> None:
    """Add a line to a keys file; create it with mode 0600 if it is missing. Raises KeysUnreadable."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            is_unfinished = False
            if end:
                file.seek(end - 1)
                is_unfinished = file.read(1) != b"\n"
            file.write(b"\n" * is_unfinished + line.encode() + b"\n")
    except OSError as error:
        raise KeysUnreadable(f"keys file {path}: {error.strerror}") from error


class Keys(NamedTuple):
    """The keys files: keys that may submit, keys that may merge, and keys that may scrape metrics."""

    submit: KeyFile
    merge: KeyFile
    metrics: KeyFile
