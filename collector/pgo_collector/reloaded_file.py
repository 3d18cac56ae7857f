"""Files that are read at the start, and again about a second after each change: keys, and others."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NoReturn

import structlog

from pgo_collector.errors import KeysUnreadable

_RELOAD_SECONDS = 1.0
_log = structlog.get_logger()


class ReloadedFile(ABC):
    """A file that may change while the server runs. What it last had is used while it can't be read."""

    def __init__(self, path: Path) -> None:
        """Read the file into `text`. Raises OSError."""
        self.path = path
        self._is_readable = False
        self.text = b""
        self.text = path.read_bytes()
        self._is_readable = True

    async def run(self) -> NoReturn:
        """Read the file again about a second after each change; run until cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            await asyncio.to_thread(self._reload)

    @abstractmethod
    def replace(self, text: bytes) -> None:
        """Use the new content of the file."""

    @abstractmethod
    def tell_unreadable(self, reason: str | None) -> None:
        """Log that the file can't be read any more."""

    def _reload(self) -> None:
        try:
            text = self.path.read_bytes()
        except OSError as error:
            if self._is_readable:
                self.tell_unreadable(error.strerror)
            self._is_readable = False
            return
        if text != self.text or not self._is_readable:
            self.text, self._is_readable = text, True
            self.replace(text)


class ReloadedKeys(ReloadedFile):
    """A file of keys. Its last keys stay valid while the file can't be read."""

    def __init__(self, path: Path) -> None:
        """Read the file into `text`. Raises KeysUnreadable, which names the file."""
        try:
            super().__init__(path)
        except OSError as error:
            raise KeysUnreadable(f"keys file {path}: {error.strerror}") from error

    def tell_unreadable(self, reason: str | None) -> None:
        """Log that the keys can't be read any more."""
        _log.error("keys unreadable", file=str(self.path), reason=reason)
