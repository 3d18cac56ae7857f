"""/ui/services/{service}/choose: the form of the label chooser; it redirects to the selected profiles."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import selection_of
from pgo_collector.ui.links import path_of, query_of, services_of
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.selection_bar import CHOOSE, FIND, IS, KEY, PAGE, PAGES, VALUE, chosen_labels
from pgo_collector.ui.sources import Sources

_OF_FORM = {CHOOSE, FIND, IS, KEY, PAGE, VALUE}


def choose_routes(sources: Sources) -> Routes:
    """Return the routes with the route."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/choose")
    async def choose(request: Request) -> Response:
        given = first_values(request)
        selection, page = selection_of(request), given.get(PAGE) or ""
        if page not in PAGES:
            raise ParameterInvalid(f"{PAGE}={page[:50]}: not a page of a service")
        query = {name: text for name, text in given.items() if name not in _OF_FORM}
        query |= {"labels": chosen_labels(request, selection)}
        if not query["labels"]:
            del query["labels"]
        path = path_of(services_of(request), selection.service, page)
        return RedirectResponse(path + query_of(query), HTTPStatus.SEE_OTHER)

    return routes
