"""Debuginfod servers: their URLs, as a setting has them, and the build ids that they may be asked for.

URLs are separated by blanks, as in elfutils' `DEBUGINFOD_URLS`, or by commas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_MOST_SERVERS = 16
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}
# Linkers write 8, 16, 20 or 32 bytes. Other build ids, such as Go's own, aren't known to these servers, and
# nothing else becomes part of a URL.
_BUILD_ID = re.compile(r"(?:[0-9a-f]{2}){8,64}")


@dataclass(frozen=True, slots=True)
class DebuginfodServer:
    """A server: its URL without a slash at the end, and its scheme, host and port, for logs and messages.

    The URL may have a user's name and password in it.
    """

    url: str
    address: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Return the server at a URL. Raises ValueError, which doesn't quote the URL."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in {"http", "https"} or not url.isascii() or not url.isprintable():
            raise ValueError("must be URLs of debuginfod servers: http:// or https://, and a host's name")
        if parts.query or parts.fragment:
            raise ValueError("a URL of a debuginfod server has no query and no fragment")
        shown = f"[{host}]" if ":" in host else host
        return cls(url.rstrip("/"), f"{parts.scheme}://{shown}" + (f":{port}" if port else ""))

    @property
    def is_in_the_clear(self) -> bool:
        """Whether the server is on another machine and without TLS, so that others could answer for it."""
        return self.address.startswith("http:") and urlsplit(self.url).hostname not in _THIS_MACHINE


def parse_servers(text: str) -> tuple[DebuginfodServer, ...]:
    """Return the servers of a text, in the order in which they are asked. Raises ValueError."""
    servers = tuple(map(DebuginfodServer.parse, text.replace(",", " ").split()))
    if len(servers) > _MOST_SERVERS:
        raise ValueError(f"there are {len(servers)} URLs, and at most {_MOST_SERVERS} are allowed")
    return servers


def is_build_id(text: str) -> bool:
    """Return whether a text is a build id that a debuginfod server may know: 8 to 64 bytes in hex."""
    return _BUILD_ID.fullmatch(text) is not None
