"""Rendering: make pages from templates, and serve their files.

The templates escape all values, and no page has an inline script or style.
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pprof_merge.analysis import function_in
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from pgo_collector.http.auth import context_of
from pgo_collector.model.times import format_time
from pgo_collector.ui import amounts
from pgo_collector.ui.links import link_of_name, site_of
from pgo_collector.workers.bulk import BulkProgress

if TYPE_CHECKING:
    from jinja2 import Environment

_FILTERS = (
    amounts.amount, amounts.nanos, amounts.size, amounts.count, amounts.percent, amounts.points,
    amounts.direction, amounts.age, amounts.day, amounts.cut, amounts.short, format_time, function_in,
)  # fmt: skip


class Rendering:
    """The templates, which are read for the first page. Each page tells signed-in visitors of the `bulk` read
    that goes on.
    """

    def __init__(self, bulk: BulkProgress) -> None:
        self._bulk = bulk

    @cached_property
    def _templates(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - for the first page

        templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        templates.filters.update({filter_.__name__: filter_ for filter_ in _FILTERS})
        templates.globals["assets"] = version_of_assets()
        templates.globals["link_of_name"] = link_of_name
        templates.globals["nothing_in"] = amounts.nothing_in
        templates.globals["bulk"] = self._bulk
        return templates

    async def page(
        self,
        request: Request,
        template: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
        **context: Any,
    ) -> HTMLResponse:
        """Return a page; its `visitor` is the name or fingerprint of the signed-in key, or None.

        Its `site` is the path of the pages.
        """
        key = context_of(request).key
        visitor = None if key is None else key.name or key.fingerprint
        text = await asyncio.to_thread(
            self._text, template, visitor=visitor, site=site_of(request), **context
        )
        return HTMLResponse(text, status, dict(headers or {}))

    def _text(self, template: str, **context: Any) -> str:
        return self._templates.get_template(template).render(context)


STATIC = Path(__file__).parent / "static"
# Built by `make speedscope`; not in git.
SPEEDSCOPE = Path(__file__).parent / "speedscope"

# Use Python's own table of media types, which is the same on every machine, and not the machine's files.
mimetypes.init([])


class Assets(StaticFiles):
    """The files of a folder; browsers revalidate them on each use."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or 304 if the browser has it."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "private, no-cache"
        return response


def version_of_assets() -> str:
    """Return a digest of the static files; links to them carry it, so a new file is loaded at once."""
    digest = blake2b(digest_size=6)
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def has_speedscope() -> bool:
    """Return whether speedscope was built."""
    return (SPEEDSCOPE / "index.html").is_file()
