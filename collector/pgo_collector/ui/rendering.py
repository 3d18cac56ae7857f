"""Rendering: templates to pages. Whatever is put into one is escaped; none has a script or a style in it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from pgo_collector.ui import amounts
from pgo_collector.ui.assets import version_of_assets

_FILTERS = (
    amounts.amount, amounts.nanos, amounts.size, amounts.count, amounts.percent, amounts.points,
    amounts.age, amounts.day, amounts.cut, amounts.short,
)  # fmt: skip


class Rendering:
    """The templates."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update({filter_.__name__: filter_ for filter_ in _FILTERS})
        self._templates.globals["assets"] = version_of_assets()

    async def page(
        self,
        request: Request,
        template: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
        **context: Any,
    ) -> HTMLResponse:
        """A page; whoever is signed in is its `visitor`."""
        key = getattr(request.state, "bearer", None)
        visitor = None if key is None else key.name or key.fingerprint
        text = await asyncio.to_thread(self._text, template, visitor=visitor, **context)
        return HTMLResponse(text, status, dict(headers or {}))

    def _text(self, template: str, **context: Any) -> str:
        return self._templates.get_template(template).render(context)
