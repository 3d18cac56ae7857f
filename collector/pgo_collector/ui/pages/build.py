"""/ui/services/{service}/build: whether and how to build with the selection: report, commands, downloads."""

from __future__ import annotations

import json

from pprof_merge import FORMATS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.routing import Routes
from pgo_collector.model.profile_types import CPU
from pgo_collector.ui.links import api_url, site_of, speedscope_link
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

_COMMAND = """\
curl --silent --show-error --fail \\
  --header "Authorization: Bearer $PGO_KEY" \\
  --etag-save default.etag --etag-compare default.etag \\
  --output default.pgo \\
  '{url}'"""
_MAX_LISTED = 12


def build_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/build")
    async def build(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "build")
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        made, _ = await sources.reports.make(selected.selection)
        report = json.loads(made.report or b"{}")
        is_whole = not selected.links.selected or selected.links.selected == {"type": CPU}
        return await service_page(
            request,
            sources,
            selected,
            "build.html",
            report=report,
            left_out=len(made.left_out),
            formats=list(FORMATS.values()),
            merge_command=_command(request, "merge", selected.links.service, selected.links.selected),
            release_command=_command(request, "release", selected.links.service, {}) if is_whole else None,
            speedscope=speedscope_link(site_of(request), selected.links),
            most=_MAX_LISTED,
        )

    return routes


def _command(request: Request, route: str, service: str, selected: dict[str, str]) -> str:
    """Return the command for a pipeline. URLs percent-encode quotes, so none ends the quotes of the shell."""
    query = {"service": service, **selected, "format": "go"}
    return _COMMAND.format(url=api_url(request, route, query))
