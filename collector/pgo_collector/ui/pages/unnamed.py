"""/ui/services/{service}/unnamed: programs whose functions have no names, and how to send their symbols."""

from __future__ import annotations

from shlex import quote

from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.errors import BinariesOff
from pgo_collector.http.routing import Routes
from pgo_collector.http.selections import sample_type_of
from pgo_collector.queries.answers import Unnamed
from pgo_collector.queries.unnamed import unnamed_of
from pgo_collector.ui.links import api_url
from pgo_collector.ui.pages.service import no_profiles_page, selected_profiles, service_page
from pgo_collector.ui.pages.visitors import require_service
from pgo_collector.ui.sources import Sources

# Programs in the table, and characters of a path in a command.
_MOST_LISTED, _LONGEST_PATH = 100, 500
_COMMANDS = (
    "pgo-agent binary {file} --url {url} --service {service} --key-file submit.key",
    """\
curl --silent --show-error --fail \\
  --header "Authorization: Bearer $PGO_KEY" \\
  --data-binary @{file} \\
  {upload}""",
)


def unnamed_routes(sources: Sources) -> Routes:
    """Return the routes with the page."""
    routes = Routes(require_service(sources.sessions))

    @routes.get("/services/{service}/unnamed")
    async def unnamed(request: Request) -> Response:
        selected = await selected_profiles(request, sources, "unnamed", "sample_type")
        if selected.summary is None:
            return await no_profiles_page(request, sources, selected)
        found = await unnamed_of(sources.fleet, selected.selection, sample_type_of(request))
        try:
            await sources.binaries.check()
        except BinariesOff as error:
            refusal = str(error)
        else:
            refusal = ""
        return await service_page(
            request,
            sources,
            selected,
            "unnamed.html",
            unnamed=found,
            most=_MOST_LISTED,
            refusal=refusal,
            commands=_commands(request, selected.links.service, found),
        )

    return routes


def _commands(request: Request, service: str, found: Unnamed) -> list[str]:
    """Return commands of which each uploads the missing program with the largest value; none if none helps.

    The path is what profiles say, and so is quoted for a shell.
    """
    missing = (program for program in found.programs if program.build_id and not program.stored)
    first = next(missing, None)
    if first is None:
        return []
    file = first.file if 0 < len(first.file) <= _LONGEST_PATH and first.file.isprintable() else "PROGRAM"
    upload = api_url(request, "binaries", {"service": service})
    url = upload.partition("/v1/")[0]
    values = {"file": quote(file), "url": quote(url), "service": quote(service), "upload": quote(upload)}
    return [command.format(**values) for command in _COMMANDS]
