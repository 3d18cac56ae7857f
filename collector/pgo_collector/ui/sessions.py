"""Sessions: signed tokens that a browser holds in place of a key. The server stores none of them.

A token has the key's fingerprint and the time when it ends. It is signed with the server's secret over the
key's digest and that time. A session ends early if its key is removed from the keys file, since the signature
can't be checked without the key's digest.
"""

from __future__ import annotations

import hmac
import re
import time
from dataclasses import dataclass

from pgo_collector.http.keys import Key, KeyFile

_TOKEN = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Begins and checks sessions for the keys of a file; each lasts `seconds`."""

    keys: KeyFile
    secret: bytes
    seconds: int

    def begin(self, key: Key) -> str:
        """Return the token of a new session of a key."""
        ends = str(int(time.time()) + self.seconds)
        return f"{key.fingerprint}.{ends}.{self._signature(key, ends)}"

    def key_of(self, token: str) -> Key | None:
        """Return the key of a session; None if the token is invalid, has ended, or its key is removed."""
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
