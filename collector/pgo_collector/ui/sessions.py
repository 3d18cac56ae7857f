"""Sessions: signed tokens that a browser holds in place of a key.

A token has the key's fingerprint, the time when it ends, and a random number. It is signed with the server's
secret over the key's digest, that time and that number. A session ends early if its key is removed from the
keys file, since the signature can't be checked without the key's digest, and by `Sessions.end`: the server
stores which have ended, and no others.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from dataclasses import dataclass, replace

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.catalog.ended_sessions import EndedSessions
from pgo_collector.http.keys import Key, KeyFile
from pgo_collector.store.store import Store, catalog_fails, not_stored
from pgo_collector.submits.opened_files import OpenedFiles

_TOKEN = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{16})\.([0-9a-f]{64})", re.ASCII)


class Sessions:
    """The sessions of visitors; an end holds on all collectors that share the catalog."""

    def __init__(self, tokens: SessionTokens, store: Store) -> None:
        self.tokens = tokens
        self._store = store
        self._ended = EndedSessions(store.catalog)

    async def key_of(self, token: str) -> Key | None:
        """Return the key of a session; None if there is no such session any more. Raises CatalogFails."""
        key = self.tokens.key_of(token)
        if key is None:
            return None
        try:
            has_ended = await asyncio.to_thread(self._ended.includes, session_of(token))
        except SQLAlchemyError as error:
            raise catalog_fails(error) from error
        return None if has_ended else key

    async def end(self, token: str) -> None:
        """End a session, if the token is of one. Raises NotStored or CatalogFails."""
        if self.tokens.key_of(token) is None:
            return
        try:
            await self._store.write(self._ended.add, session_of(token), int(token.split(".")[1]))
        except (OSError, SQLAlchemyError) as error:
            raise not_stored("end of the session", error) from error


def session_of(token: str) -> str:
    """Return what tells the session of a token from all others: its signature."""
    return token.rpartition(".")[2]


class SessionsOfFiles(Sessions):
    """The same sessions on the pages of opened files, where a key is for the files of its session only."""

    def __init__(self, tokens: SessionTokens, store: Store, files: OpenedFiles) -> None:
        super().__init__(tokens, store)
        self._files = files

    async def key_of(self, token: str) -> Key | None:
        """Return the key of a session with the scope of its files, as `Sessions.key_of` returns one."""
        key = await super().key_of(token)
        return None if key is None else replace(key, scope=self._files.scope_of(session_of(token)))


@dataclass(frozen=True, slots=True)
class SessionTokens:
    """Makes and checks tokens of sessions for the keys of a file; each lasts `seconds`."""

    keys: KeyFile
    secret: bytes
    seconds: int

    def begin(self, key: Key) -> str:
        """Return the token of a new session of a key."""
        ends, number = str(int(time.time()) + self.seconds), secrets.token_hex(8)
        return f"{key.fingerprint}.{ends}.{number}.{self._signature(key, ends, number)}"

    def key_of(self, token: str) -> Key | None:
        """Return the key of a session; None if the token is invalid, has ended, or its key is removed."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        fingerprint, ends, number, signature = found.groups()
        for key in self.keys.keys.keys:
            is_signed = key.fingerprint == fingerprint and hmac.compare_digest(
                self._signature(key, ends, number), signature
            )
            if is_signed and int(ends) > time.time():
                return key
        return None

    def _signature(self, key: Key, ends: str, number: str) -> str:
        return hmac.new(self.secret, key.digest + f"{ends}.{number}".encode(), "sha256").hexdigest()
