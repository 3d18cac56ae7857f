"""A key: a line of a keys file. What is held of it is its digest, what it is called, and its scope."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Self

from pgo_collector.errors import KeyMalformed
from pgo_collector.http.scope import Scope

_FIELDS = (b"name=", b"service=")
_DIGEST_PREFIX = b"sha256:"
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


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
