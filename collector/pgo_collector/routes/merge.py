"""GET, HEAD and POST /v1/merge: the merge of the selected profiles; POST can also combine them."""

import asyncio

from fastapi import APIRouter, Depends
from pprof_merge import FORMATS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.renditions import Rendition, format_named, weighting_named
from pgo_collector.errors import CombineNeedsPost, CombineWeighted, ParameterInvalid
from pgo_collector.http.answers import merge_download
from pgo_collector.http.auth import require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import (
    LATENCIES,
    METHODS,
    PATTERNS,
    SELECTION,
    download,
    parameters,
    problems,
)
from pgo_collector.http.selections import first_value, latencies_of, patterns_of, selection_of
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.store.binaries import HELPED_FORMAT, Binaries


def merge_routes(
    merges: Merges, rules: RulesFolder, binaries: Binaries, keys: KeyFile, default_service: str
) -> APIRouter:
    """Return the route."""
    router = APIRouter()

    @router.api_route(
        "/v1/merge",
        methods=["POST", *METHODS],
        summary="Return the merge of a selection",
        response_class=Response,
        responses=download("The merge", *(known.media_type for known in FORMATS.values()))
        | problems(400, 403, 404, 405, 422, 500, 501, 503),
        openapi_extra=parameters(
            *SELECTION, *LATENCIES, *PATTERNS, "format", "binary", "weight", "half_life", "and_combine"
        ),
        dependencies=[Depends(_check_method), Depends(require_service_key(keys, default_service))],
    )
    async def merge(request: Request) -> Response:
        selection = selection_of(request)
        wanted = format_named(*request.query_params.getlist("format")[:1])
        weighting = weighting_named(first_value(request, "weight"), first_value(request, "half_life"))
        latencies, patterns = latencies_of(request), patterns_of(request)
        is_whole = latencies.is_everything and patterns.is_everything
        if _combines(request) and not (weighting.is_plain and is_whole):
            raise CombineWeighted(
                "a combine stores the plain sum of all samples; leave out and_combine, or weight, half_life,"
                " latency_from, latency_to, focus, ignore and hide"
            )
        ruled = await asyncio.to_thread(rules.of, selection.service)
        helped = await binaries.choice(selection.service, wanted.name, _binary(request, wanted.name))
        rendition = Rendition(wanted, ruled, weighting, latencies, patterns, helped)
        make = merges.combine if _combines(request) else merges.current
        made = await make(selection, rendition)
        return merge_download(request, made, f"{selection.service}{wanted.suffix}", wanted.media_type)

    return router


def _binary(request: Request, format_: str) -> str | None:
    """Return the value of `binary`, None if it isn't given. Raises ParameterInvalid."""
    named = first_value(request, "binary")
    if named and format_ != HELPED_FORMAT:
        raise ParameterInvalid(f"binary: it needs format={HELPED_FORMAT}")
    return named or None


def _combines(request: Request) -> bool:
    """Return whether the first `and_combine` is exactly `true`, as pgo-fleet reads it."""
    return first_value(request, "and_combine") == "true"


async def _check_method(request: Request) -> None:
    if _combines(request) and request.method != "POST":
        raise CombineNeedsPost(f"{request.method} must not change anything; combine with POST")
