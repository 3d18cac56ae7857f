"""Files that are served as they are: those of the pages, and speedscope where it was built."""

from __future__ import annotations

import mimetypes
from hashlib import blake2b
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

STATIC = Path(__file__).parent / "static"
# Made by `make speedscope`; it isn't in git.
SPEEDSCOPE = Path(__file__).parent / "speedscope"

# Media types are the same on every machine, and no request reads the machine's own table.
mimetypes.init([])


class Assets(StaticFiles):
    """The files of a folder; browsers ask each time whether there is another."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file, or 304 to a browser that has it."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "private, no-cache"
        return response


def version_of_assets() -> str:
    """What is different when any file of the pages is."""
    digest = blake2b(digest_size=6)
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def has_speedscope() -> bool:
    """Whether it was built."""
    return (SPEEDSCOPE / "index.html").is_file()
