"""Links among the pages of a service, which keep what is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlencode

from starlette.requests import Request

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.context import context_of
from pgo_collector.http.openapi import BASE, SELECTION
from pgo_collector.http.selections import first

SERVICES = "/ui/services"
SELECTED = tuple(name for name in SELECTION if name != "service")
# Of what is selected, in a link; a page has a thousand of them.
_LONGEST = 1000


def query_of(parameters: dict[str, str]) -> str:
    """A query with its question mark; nothing for no parameters."""
    return f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""


@dataclass(frozen=True, slots=True)
class Links:
    """Of a page of a service: the parameters that it was asked for with."""

    service: str
    page: str
    selected: dict[str, str]
    own: dict[str, str]

    @classmethod
    def of(cls, request: Request, page: str, *own: str) -> Self:
        """Those of a request for a page that has parameters of its own. Raises ParameterInvalid."""
        selected = {name: text for name in SELECTED if (text := _all(request, name))}
        if len(query_of(selected)) > _LONGEST:
            raise ParameterInvalid(f"labels: a page takes {_LONGEST:,} letters of them at most")
        given = {name: first(request, name) or "" for name in own if name in request.query_params}
        # A base's labels may be none; elsewhere what is empty isn't meant.
        kept = {name: text for name, text in given.items() if text or name in BASE}
        return cls(context_of(request).service, page, selected, kept)

    def to(self, page: str, **parameters: str | int) -> str:
        """A link to another page of the service, of the same selection."""
        further = {name: str(value) for name, value in parameters.items()}
        return self._path(page) + query_of(self.selected | further)

    def here(self, **changes: str | int | None) -> str:
        """A link to this page, with other parameters; without those that are None."""
        return self._path(self.page) + query_of(self.changed(**changes))

    def changed(self, **changes: str | int | None) -> dict[str, str]:
        """The parameters of such a link."""
        every: dict[str, str | int | None] = {**self.selected, **self.own, **changes}
        return {name: str(value) for name, value in every.items() if value is not None}

    def _path(self, page: str) -> str:
        return f"{SERVICES}/{quote(self.service, safe='')}" + (f"/{page}" if page else "")


def _all(request: Request, name: str) -> str:
    """The values of a parameter: labels may be given several times."""
    values = [text for text in request.query_params.getlist(name) if text]
    return ",".join(values) if name == "labels" else next(iter(values), "")
