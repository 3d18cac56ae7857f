"""GET, HEAD and POST /v1/merge: the merge of the selected profiles; POST can also combine them."""

import asyncio

from pprof_merge import FORMATS
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.renditions import (
    NO_BINARIES,
    PLAIN_RENDITION,
    Rendition,
)
from pgo_collector.errors import CombineNeedsPost, CombineWeighted, ParameterInvalid
from pgo_collector.http.answers import merge_download
from pgo_collector.http.auth import require_service_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.openapi import (
    LATENCIES,
    PATTERNS,
    SELECTION,
    download,
    parameters,
    problems,
)
from pgo_collector.http.routing import Routes, first_values
from pgo_collector.http.selections import (
    every_label_of,
    format_named,
    latencies_of,
    patterns_of,
    selection_in,
    services_in,
    symbolize_of,
    trim_path_of,
    weighting_named,
    weights_of,
)
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.ids import ANY_ID
from pgo_collector.model.selection import Selection
from pgo_collector.model.services import is_several
from pgo_collector.store.binaries import HELPED_FORMAT, Binaries


def merge_routes(
    merges: Merges, rules: RulesFolder, binaries: Binaries, keys: KeyFile, default_service: str
) -> Routes:
    """Return the route."""
    routes = Routes()

    @routes.add(
        ["POST", "GET", "HEAD"],
        "/v1/merge",
        summary="Return the merge of a selection",
        response_class=Response,
        responses=download("The merge", *(known.media_type for known in FORMATS.values()))
        | problems(400, 403, 404, 405, 422, 500, 501, 503),
        openapi_extra=parameters(
            *SELECTION,
            *LATENCIES,
            *PATTERNS,
            "format",
            "binary",
            "weight",
            "half_life",
            "weights",
            "sample_labels",
            "symbolize",
            "and_combine",
            several=True,
        ),
        checks=[_check_method, require_service_key(keys, default_service)],
    )
    async def merge(request: Request) -> Response:
        selection, given = selection_in(request, services_in(request)), first_values(request)
        wanted = format_named(given.get("format", PLAIN_RENDITION.format.name))
        weights = weights_of(request, selection.service)
        weighting = weighting_named(given.get("weight"), given.get("half_life"), weights)
        latencies, patterns = latencies_of(request), patterns_of(request)
        every_label, trim_path = every_label_of(request), trim_path_of(request)
        symbolize = symbolize_of(request)
        ruled = await asyncio.to_thread(rules.of, selection.service)
        helped = NO_BINARIES
        if wanted.name == HELPED_FORMAT:
            helped = await binaries.choice(selection.service, wanted.name, given.get("binary") or None)
            if symbolize:
                raise ParameterInvalid(
                    f"symbolize: format={HELPED_FORMAT} takes a program by itself; leave out one of the two"
                )
        elif given.get("binary"):
            raise ParameterInvalid(f"binary: it needs format={HELPED_FORMAT}")
        rendition = Rendition(
            wanted, ruled, weighting, latencies, patterns, helped, every_label, trim_path, symbolize
        )
        if given.get("and_combine") == "true":
            _check_combine(selection, rendition)
            made = await merges.combine(selection, rendition)
        else:
            made = await merges.current(selection, rendition)
        return merge_download(request, made, f"{selection.service}{wanted.suffix}", wanted.media_type)

    return routes


def _check_combine(selection: Selection, rendition: Rendition) -> None:
    """Raise CombineWeighted or ParameterInvalid for what a combine doesn't store."""
    if not (
        rendition.weighting.is_plain
        and rendition.latencies.is_everything
        and rendition.patterns.is_everything
    ):
        raise CombineWeighted(
            "a combine stores the plain sum of all samples; leave out and_combine, or weight, half_life,"
            " latency_from, latency_to, focus, ignore and hide"
        )
    if is_several(selection.service):
        raise ParameterInvalid("and_combine: each service is combined by itself; give one service")
    if selection.ids != ANY_ID:
        raise ParameterInvalid(
            "profile_id, trace_id, span_id: a combine takes whole profiles, and all; leave out and_combine"
        )
    if rendition.trim_path:
        raise ParameterInvalid("trim_path: a combine stores whole paths; leave out one of the two")
    if rendition.every_label:
        raise ParameterInvalid(
            "sample_labels=all: a combine stores the usual merge; leave out one of the two"
        )
    if rendition.symbolize:
        raise ParameterInvalid("symbolize: a combine stores what was sent; leave out one of the two")


async def _check_method(request: Request) -> None:
    """Raise CombineNeedsPost for a read with `and_combine`, if its first value is exactly `true`."""
    if request.method != "POST" and first_values(request).get("and_combine") == "true":
        raise CombineNeedsPost(f"{request.method} must not change anything; combine with POST")
