"""Links between the pages of a service; they keep the selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlencode

from starlette.requests import Request

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.auth import context_of
from pgo_collector.http.openapi import BASE, LATENCIES, PATTERNS, SELECTION
from pgo_collector.http.parameters import PARAMETERS, TEXTS
from pgo_collector.http.routing import first_values

SELECTED = tuple(name for name in SELECTION if name != "service")
# The pages that can show a part of the samples; links from one to another keep its parameters.
_OF_STACKS = ("", "live", "top", "function", "diff", "merge")
_CARRIED = {
    **dict.fromkeys(PATTERNS, _OF_STACKS),
    **dict.fromkeys((*LATENCIES, "sample_type"), (*_OF_STACKS, "series")),
}
# The length of a link to the page itself if the page has dozens of them.
_MAX_HERE = 2500
# Characters of a function's name in a link.
_MAX_NAME = 500
# The longest selection and filters, as a link has them. A page has up to a thousand such links.
_MOST_CHARACTERS = 1000
# Where the pages of opened files are, below the others.
OF_FILES = "/file"
# Characters of a search.
MAX_SEARCH = 200


def query_of(parameters: dict[str, str]) -> str:
    """Return the query of a URL with its question mark; empty without parameters."""
    return f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""


def site_of(request: Request) -> str:
    """Return the path of the pages, without a slash at its end, as the browser sees it."""
    return f"{context_of(request).root_path}/ui"


def services_of(request: Request) -> str:
    """Return the path below which each service has its pages, stored or opened, as the browser sees it."""
    return f"{context_of(request).root_path}{request.scope['root_path']}/services"


def path_of(services: str, service: str, page: str) -> str:
    """Return the path of a page of a service, without a query; `services` is what `services_of` returns."""
    return f"{services}/{quote(service, safe='')}" + (f"/{page}" if page else "")


@dataclass(frozen=True, slots=True)
class Links:
    """The parameters of a request for a page of a service, from which the page's links are made.

    `services` is the path below which the pages of services are. `selected` are those of the selection,
    `own` those of the page.
    """

    services: str
    service: str
    page: str
    selected: dict[str, str]
    own: dict[str, str]

    @classmethod
    def of(cls, request: Request, page: str, *own: str) -> Self:
        """Return the links for a request; `own` are the page's own parameters. Raises ParameterInvalid."""
        selected = {name: text for name in SELECTED if (text := _value_of(request, name))}
        values = first_values(request)
        given = {name: values[name] for name in own if name in values}
        if "base_labels" in given:
            given["base_labels"] = _value_of(request, "base_labels")
        if "search" in given:
            given["search"] = given["search"][:MAX_SEARCH]
        # Empty labels of a base mean "no labels"; other empty parameters mean nothing.
        kept = {name: text for name, text in given.items() if text or name in BASE}
        links = cls(services_of(request), context_of(request).service, page, selected, kept)
        if not links.fits():
            raise ParameterInvalid(
                f"labels, ids, focus, ignore, hide, trim_path: together they have over {_MOST_CHARACTERS:,}"
                " characters in a link, the limit; use fewer"
            )
        return links

    def to(self, page: str, **parameters: str | int | None) -> str:
        """Return a link to another page of the service, with the same selection; None removes a parameter."""
        carried = {name: self.own[name] for name in _CARRIED if name in self.own and page in _CARRIED[name]}
        return self.path(page) + query_of(_given({**self.selected, **carried, **parameters}))

    def path(self, page: str) -> str:
        """Return the path of a page of the service, without a query."""
        return path_of(self.services, self.service, page)

    def here(self, **changes: str | int | None) -> str:
        """Return a link to this page with other parameters; None removes a parameter."""
        return self.path(self.page) + query_of(self.changed(**changes))

    @property
    def are_short(self) -> bool:
        """Return whether a page may have dozens of links to itself: not if it is about a very long name."""
        return len(self.here()) < _MAX_HERE

    def fits(self, **changes: str) -> bool:
        """Return whether the selection and the patterns, some of them changed, fit into a link."""
        own = {name: self.own[name] for name in PATTERNS if name in self.own}
        return len(query_of({**self.selected, **own, **changes})) <= _MOST_CHARACTERS

    def with_all(self, page: str, **changes: str | int | None) -> str:
        """Return a link to another page of the service that takes the same parameters, but for changes."""
        return self.path(page) + query_of(self.changed(**changes))

    def changed(self, **changes: str | int | None) -> dict[str, str]:
        """Return the parameters of the link that `here` returns, the changed ones last."""
        kept = {name: text for name, text in {**self.selected, **self.own}.items() if name not in changes}
        return _given({**kept, **changes})


def speedscope_link(site: str, links: Links) -> str:
    """Return a link that opens the merge of the selection in this server's speedscope."""
    merge = f"{links.path('merge')}?{urlencode(links.selected | {'format': 'speedscope'})}"
    return f"{site}/speedscope/index.html#profileURL={quote(merge, safe='')}&title={quote(links.service)}"


def is_https(request: Request) -> bool:
    """Return whether the browser uses HTTPS, to this server or to a proxy.

    A client that sends a false X-Forwarded-Proto only gets a cookie that it can't use.
    """
    forwarded = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    return "https" in {request.url.scheme, forwarded}


def api_url(request: Request, route: str, query: Mapping[str, str]) -> str:
    """Return the URL of a route on /v1, at the address at which the visitor opened the page."""
    scheme = "https" if is_https(request) else "http"
    host = quote(request.headers.get("Host", ""), safe=":[]")
    return f"{scheme}://{host}{context_of(request).root_path}/v1/{route}?{urlencode(query, quote_via=quote)}"


def link_of_name(links: Links, page: str, name: str, by: str = "function") -> str:
    """Return a link to a page about a function or package; empty if its name is too long for a link."""
    return links.to(page, **{by: name}) if 0 < len(name) < _MAX_NAME else ""


def _given(parameters: Mapping[str, str | int | None]) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items() if value is not None}


def _value_of(request: Request, name: str) -> str:
    """Return the value of a parameter; those that may be given several times are joined."""
    values = [text for text in request.query_params.getlist(name) if text]
    return ",".join(values) if PARAMETERS[name][0] == TEXTS else next(iter(values), "")
