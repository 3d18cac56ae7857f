"""A view of files: a collector that runs for `pprof-merge view`, of which nothing stays."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Thread
from urllib.parse import quote

from pgo_collector.errors import FileRefused, FileUnreadable, Refusal
from pgo_collector.serve.first_look import sign_in_link
from pgo_collector.settings import Settings
from pgo_collector.submits.opened_files import OpenedFiles, read_paths
from pgo_collector.ui.pages.file import link_of_files
from pgo_collector.ui.sessions import SessionTokens


class ViewOfFiles:
    """Opens files when the collector starts, and prints the link to them, which signs in once."""

    file_seconds = inf

    def __init__(self, paths: Sequence[Path], *, in_browser: bool) -> None:
        self._paths = paths
        self._in_browser = in_browser
        self._link = ""

    async def open(self, files: OpenedFiles) -> None:
        """Open the files for all sessions. Raises FileUnreadable."""
        try:
            opened = await files.open(None, read_paths, [path.absolute() for path in self._paths])
        except (FileRefused, Refusal) as error:
            raise FileUnreadable(str(error)) from error
        self._link = link_of_files("/ui", *opened)

    def print(self, settings: Settings, url: str, tokens: SessionTokens) -> None:
        """Print the link to the files, at a URL that is served now, and open it if that was asked for."""
        link = f"{sign_in_link(settings, url, tokens)}&next={quote(self._link, safe='')}"
        with suppress(OSError):  # nobody reads it any more
            sys.stdout.write(f"{link}\nThis link signs you in, once. Ctrl-C ends the pages; nothing stays.\n")
            sys.stdout.flush()
        if self._in_browser:
            Thread(target=webbrowser.open, args=(link,), daemon=True).start()
