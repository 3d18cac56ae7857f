"""Files of keys: read at the start, and again about a second after each change."""

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
    """A file of keys. Its last keys stay valid while the file can't be read."""

    def __init__(self, path: Path) -> None:
        """Read the file into `text`. Raises KeysUnreadable, which names the file."""
        self.path = path
        try:
            self.text = path.read_bytes()
        except OSError as error:
            raise KeysUnreadable(f"keys file {path}: {error.strerror}") from error
        self._is_readable = True

    async def run(self) -> NoReturn:
        """Read the file again about a second after each change; run until cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            await asyncio.to_thread(self._reload)

    @abstractmethod
    def replace(self, text: bytes) -> None:
        """Use the new content of the file."""

    def _reload(self) -> None:
        try:
            text = self.path.read_bytes()
        except OSError as error:
            if self._is_readable:
                _log.error("keys unreadable", file=str(self.path), reason=error.strerror)
            self._is_readable = False
            return
        if text != self.text or not self._is_readable:
            self.text, self._is_readable = text, True
            self.replace(text)
