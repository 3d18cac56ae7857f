"""/ui/services/{service}/build: whether to build with it, and how: report, downloads, pipelines."""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends
from pprof_merge import FORMATS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.http.openapi import METHODS
from pgo_collector.model.profile_types import CPU
from pgo_collector.ui.links import SERVICES, Links
from pgo_collector.ui.pages.service import nothing_page, service_page, shown
from pgo_collector.ui.pages.visitors import is_https, sees_service
from pgo_collector.ui.sources import Sources

_COMMAND = """\
curl --silent --show-error --fail \\
  --header "Authorization: Bearer $PGO_KEY" \\
  --etag-save default.etag --etag-compare default.etag \\
  --output default.pgo \\
  '{url}'"""
_MOST_NAMED = 12


def build_routes(sources: Sources) -> APIRouter:
    """The route."""
    router = APIRouter(dependencies=[Depends(sees_service(sources.sessions))])

    @router.api_route("/services/{service}/build", methods=METHODS)
    async def build(request: Request) -> Response:
        what = await shown(request, sources, "build")
        if what.summary is None:
            return await nothing_page(request, sources, what)
        made, _ = await sources.reports.make(what.selection)
        report = json.loads(made.report or b"{}")
        is_whole = not what.links.selected or what.links.selected == {"type": CPU}
        return await service_page(
            request,
            sources,
            what,
            "build.html",
            report=report,
            left_out=len(made.left_out),
            formats=list(FORMATS.values()),
            merge_command=_command(request, "merge", what.links.service, what.links.selected),
            release_command=_command(request, "release", what.links.service, {}) if is_whole else None,
            speedscope=_speedscope(what.links),
            most=_MOST_NAMED,
        )

    return router


def _command(request: Request, route: str, service: str, selected: dict[str, str]) -> str:
    """What a pipeline runs. A quote in a URL is percent-encoded, so nothing ends the shell's."""
    scheme = "https" if is_https(request) else "http"
    query = {"service": service, **selected, "format": "go"}
    host = quote(request.headers.get("Host", ""), safe=":[]")
    return _COMMAND.format(url=f"{scheme}://{host}/v1/{route}?{urlencode(query, quote_via=quote)}")


def _speedscope(links: Links) -> str:
    """speedscope with the merge; both are served by us."""
    merge = f"{SERVICES}/{links.service}/merge?{urlencode(links.selected | {'format': 'speedscope'})}"
    return f"/ui/speedscope/index.html#profileURL={quote(merge, safe='')}&title={quote(links.service)}"
