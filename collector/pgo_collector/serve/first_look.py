"""A first look: `pgo-collector serve` with keys that it makes itself, and a text that says how to use it.

Only where nobody named keys files and only programs on this machine can connect: see `Settings.makes_keys`.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from pgo_collector.settings import Settings
from pgo_collector.submits.example import EXAMPLE
from pgo_collector.submits.opened_files import SECONDS, OpenedFiles
from pgo_collector.ui.sessions import SessionTokens

_LINK_SECONDS = 3600

_GREETING = """\
A collector for a first look, with keys of its own and data in {directory}; Ctrl-C stops it.

The pages. This link signs you in, once and within an hour:
{link}

In another terminal, in this folder:

# Submit a profile.
curl -sS --fail-with-body -H "Authorization: Bearer $(head -n 1 {submit_keys})" \\
    --data-binary @{profile} {url}/v1/submit

# Fetch the merge of all profiles, for `go build -pgo=default.pgo`.
curl -sS --fail -H "Authorization: Bearer $(head -n 1 {merge_keys})" -o default.pgo {url}/v1/merge

"""


class Opening(Protocol):
    """The beginning of a server: the files to open, how long they stay open, in s, and what to print."""

    file_seconds: float

    async def open(self, files: OpenedFiles) -> None:
        """Open files, before anything is served."""

    def print(self, settings: Settings, url: str, tokens: SessionTokens) -> None:
        """Print how to use the server, which serves at a URL now."""


class FirstLook:
    """The start of `serve`: a text that says how to use the collector, and no open files."""

    file_seconds = SECONDS

    async def open(self, files: OpenedFiles) -> None:
        """Do nothing."""

    def print(self, settings: Settings, url: str, tokens: SessionTokens) -> None:
        """Print how to use the collector, which serves at a URL now, if it has keys of its own.

        No key is printed, since it would stay in the terminal's history, but a link that works once.
        """
        if not (settings.makes_keys and tokens.keys.keys.keys):
            return
        greeting = _GREETING.format(
            directory=settings.directory,
            url=f"{url}{settings.root_path}",
            link=sign_in_link(settings, url, tokens),
            submit_keys=_pasted(settings.submit_auth_keys_file),
            merge_keys=_pasted(settings.merge_auth_keys_file),
            profile=_pasted(EXAMPLE),
        )
        with suppress(OSError):  # nobody reads it any more
            sys.stdout.write(greeting)
            sys.stdout.flush()


def sign_in_link(settings: Settings, url: str, tokens: SessionTokens) -> str:
    """Return a link that signs in with the first key, once."""
    session = replace(tokens, seconds=_LINK_SECONDS).begin(tokens.keys.keys.keys[0])
    return f"{url}{settings.root_path}/ui/sign-in?session={session}"


def _pasted(file: Path) -> str:
    """Return the path for a shell in this folder, as short as it can be."""
    here = Path.cwd()
    return shlex.quote(str(file.relative_to(here) if file.is_relative_to(here) else file))
