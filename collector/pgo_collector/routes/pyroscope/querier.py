"""`querier.v1.QuerierService`: the calls by which Grafana lists and reads profiles, over Connect.

Nothing found is an empty answer. A key sees the services that it is for, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message
from pprof_merge.merging import RequestIds
from pprof_proto.profile_pb2 import Profile
from starlette.requests import Request
from starlette.responses import Response

from pgo_collector.engine.sample_types import ExemplarKind, WriteProfile
from pgo_collector.errors import NotOffered, ParameterInvalid
from pgo_collector.http.auth import context_of, require_key
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.routing import Routes
from pgo_collector.model.ids import DIGITS, SPAN_DIGITS, Ids, parse_ids
from pgo_collector.model.series import SERVICE_NAME, Scope, is_hidden
from pgo_collector.queries.grafana.matching import Match, Series, Span, check_labels
from pgo_collector.queries.grafana.profile_types import TYPE_LABELS, ProfileType
from pgo_collector.queries.grafana.profiles import Profiles, Query
from pgo_collector.queries.grafana.reading import (
    Grouping,
    GroupLabels,
    PointExemplar,
    Points,
    Reading,
    Steps,
)
from pgo_collector.queries.grafana.selector import OTHER_SERVICE_NAME, parse_selectors
from pgo_collector.routes.push.connect import Messages, is_json, post_call, written, written_answer
from pgo_collector.routes.pyroscope import querier_pb2 as messages
from pgo_collector.routes.pyroscope.encoding import pprof_message, profile_message
from pgo_collector.routes.pyroscope.flamebearer import diff_message, flame_graph_message
from pgo_collector.routes.pyroscope.graphs import dot_message, tree_message

QUERIER = "/querier.v1.QuerierService/"
SETTINGS = "/settings.v1.SettingsService/"

Asked = TypeVar("Asked", bound=Message)
Call = Callable[[Request, Asked], Awaitable[Message]]
# A call whose answer a worker writes, in the form of the request.
WrittenCall = Callable[[Request, Asked], Awaitable[bytes]]


def querier_routes(profiles: Profiles, reading: Reading, read: Messages, keys: KeyFile) -> Routes:
    """Return the routes of the service."""
    routes = Routes(require_key(keys))
    querier, reader = _Querier(profiles), _Reader(reading)

    def serve(name: str, summary: str, kind: type[Asked], call: Call[Asked]) -> None:
        read.serve(routes, f"{QUERIER}{name}", f"{summary}, as Grafana asks for it", kind, call)

    serve("ProfileTypes", "List what is measured", messages.ProfileTypesRequest, querier.profile_types)
    serve("LabelNames", "List the names of labels", messages.LabelNamesRequest, querier.label_names)
    serve("LabelValues", "List the values of a label", messages.LabelValuesRequest, querier.label_values)
    serve("Series", "List the sets of labels", messages.SeriesRequest, querier.series)
    serve(
        "GetProfileStats", "Return since when there are profiles", messages.GetProfileStatsRequest,
        querier.stats,
    )  # fmt: skip
    serve("SelectSeries", "Return sums over time", messages.SelectSeriesRequest, reader.series)

    def serve_written(name: str, summary: str, kind: type[Asked], call: WrittenCall[Asked]) -> None:
        async def endpoint(request: Request) -> Response:
            return written_answer(request, await call(request, await read.read(request, kind)))

        post_call(routes, f"{QUERIER}{name}", f"{summary}, as Grafana asks for it", endpoint)

    serve_written(
        "SelectMergeStacktraces", "Return a flame graph", messages.SelectMergeStacktracesRequest,
        reader.stacktraces,
    )  # fmt: skip
    serve_written(
        "SelectMergeSpanProfile", "Return a flame graph of spans", messages.SelectMergeSpanProfileRequest,
        reader.span_profile,
    )  # fmt: skip
    serve_written("Diff", "Return a flame graph that compares two", messages.DiffRequest, reader.diff)
    serve_written(
        "SelectMergeProfile", "Return a merge as pprof", messages.SelectMergeProfileRequest, reader.profile
    )

    @routes.post(f"{QUERIER}{{method}}", include_in_schema=False)
    @routes.post(f"{SETTINGS}{{method}}", include_in_schema=False)
    async def unimplemented(_: Request, method: str) -> Response:
        raise NotOffered(f"{method[:50]} isn't implemented")

    return routes


class _Querier:
    """The calls that list what is stored."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._most = profiles.limits.labels

    async def profile_types(
        self, request: Request, asked: messages.ProfileTypesRequest
    ) -> messages.ProfileTypesResponse:
        """Return the profile types of stored profiles."""
        match = await self._match(request, [], Span.of(asked.start, asked.end))
        return messages.ProfileTypesResponse(
            profile_types=[
                messages.ProfileType(
                    ID=each.id,
                    name=each.name,
                    sample_type=each.sample_type,
                    sample_unit=each.sample_unit,
                    period_type=each.period_type,
                    period_unit=each.period_unit,
                )
                for each in match.profile_types
            ]
        )

    async def label_names(
        self, request: Request, asked: messages.LabelNamesRequest
    ) -> messages.LabelNamesResponse:
        """Return the names of the labels of matching series."""
        match = await self._match(request, asked.matchers, Span.of(asked.start, asked.end))
        if not match.series:
            return messages.LabelNamesResponse()
        keys = await asyncio.to_thread(match.names.index.keys, match.ids)
        names = {*filterfalse(is_hidden, keys), *_SERVICE_NAMES, *TYPE_LABELS}
        check_labels(len(names), self._most)
        return messages.LabelNamesResponse(names=sorted(names))

    async def label_values(
        self, request: Request, asked: messages.LabelValuesRequest
    ) -> messages.LabelValuesResponse:
        """Return the values of a label in matching series."""
        match = await self._match(request, asked.matchers, Span.of(asked.start, asked.end))
        values = await asyncio.to_thread(_values, match, asked.name)
        check_labels(len(values), self._most)
        return messages.LabelValuesResponse(names=values)

    async def series(self, request: Request, asked: messages.SeriesRequest) -> messages.SeriesResponse:
        """Return the distinct sets that matching series have of some labels, or of all."""
        match = await self._match(request, asked.matchers, Span.of(asked.start, asked.end))
        names = _distinct("label_names", asked.label_names)
        sets = await asyncio.to_thread(_label_sets, match, names, self._most)
        return messages.SeriesResponse(
            labels_set=[
                messages.Labels(labels=[messages.LabelPair(name=name, value=value) for name, value in each])
                for each in sets
            ]
        )

    async def stats(self, request: Request, _: messages.GetProfileStatsRequest) -> Message:
        """Return the times of the first and the last profile of the key's services."""
        match = await self._match(request, [], Span())
        times = await asyncio.to_thread(match.names.index.times, match.ids) if match.series else None
        if times is None:
            return messages.GetProfileStatsResponse()
        first, last = (each // 10**6 for each in times)
        return messages.GetProfileStatsResponse(
            data_ingested=True, oldest_profile_time=first, newest_profile_time=last
        )

    async def _match(self, request: Request, selectors: Sequence[str], span: Span) -> Match:
        return await self._profiles.match(_scope_of(request), parse_selectors(selectors), span)


class _Reader:
    """The calls that read profiles."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    async def series(
        self, request: Request, asked: messages.SelectSeriesRequest
    ) -> messages.SelectSeriesResponse:
        """Return the sums of one profile type in steps of time, by labels."""
        if asked.stack_trace_selector.call_site:
            raise ParameterInvalid("stack_trace_selector: call_site isn't offered for series")
        grouping = Grouping(
            by=_distinct("group_by", asked.group_by),
            steps=Steps.of(asked.start, asked.end, asked.step),
            is_mean=asked.aggregation == messages.TIME_SERIES_AGGREGATION_TYPE_AVERAGE,
            most=max(asked.limit, 0),
            exemplars=_exemplars_of(asked),
        )
        found = await self._reading.series(_scope_of(request), _query_of(asked), grouping)
        return await asyncio.to_thread(_series_message, found)

    async def stacktraces(self, request: Request, asked: messages.SelectMergeStacktracesRequest) -> bytes:
        """Return the flame graph of one profile type, or its profile."""
        as_json = is_json(request)
        if asked.format == messages.PROFILE_FORMAT_PPROF:
            write = partial(pprof_message, as_json)
            profile = await self._profile(request, asked, write)
            return written(messages.SelectMergeStacktracesResponse(), as_json) if profile is None else profile
        query = _below_calls(_query_of(asked), asked.stack_trace_selector)
        match asked.format:
            case messages.PROFILE_FORMAT_UNSPECIFIED | messages.PROFILE_FORMAT_FLAMEGRAPH:
                draw = partial(flame_graph_message, as_json)
            case messages.PROFILE_FORMAT_TREE:
                draw = partial(tree_message, as_json)
            case messages.PROFILE_FORMAT_DOT:
                draw = partial(dot_message, as_json, query.type)
            case _:
                raise ParameterInvalid("format: FLAMEGRAPH, TREE, DOT and PPROF are offered")
        nodes = self._reading.nodes(asked.max_nodes)
        return await self._reading.flame_graph(_scope_of(request), [query], nodes, draw)

    async def span_profile(self, request: Request, asked: messages.SelectMergeSpanProfileRequest) -> bytes:
        """Return the flame graph of spans, as a tree if that is asked for."""
        is_tree = asked.format == messages.PROFILE_FORMAT_TREE
        of_spans = messages.SelectMergeStacktracesRequest(
            profile_typeID=asked.profile_typeID,
            label_selector=asked.label_selector,
            start=asked.start,
            end=asked.end,
            max_nodes=asked.max_nodes,
            format=messages.PROFILE_FORMAT_TREE if is_tree else messages.PROFILE_FORMAT_FLAMEGRAPH,
            span_selector=asked.span_selector,
        )
        return await self.stacktraces(request, of_spans)

    async def diff(self, request: Request, asked: messages.DiffRequest) -> bytes:
        """Return the flame graph of two selections of one profile type, side by side."""
        sides = [
            _below_calls(_query_of(side), side.stack_trace_selector) for side in (asked.left, asked.right)
        ]
        if sides[0].type != sides[1].type:
            raise ParameterInvalid("right: give the profile type of left")
        nodes = self._reading.nodes(max(asked.left.max_nodes, asked.right.max_nodes))
        draw = partial(diff_message, is_json(request))
        return await self._reading.flame_graph(_scope_of(request), sides, nodes, draw)

    async def profile(self, request: Request, asked: messages.SelectMergeProfileRequest) -> bytes:
        """Return the profile of one profile type."""
        as_json = is_json(request)
        profile = await self._profile(request, asked, partial(profile_message, as_json))
        return written(Profile(), as_json) if profile is None else profile

    async def _profile(
        self,
        request: Request,
        asked: messages.SelectMergeStacktracesRequest | messages.SelectMergeProfileRequest,
        write: WriteProfile,
    ) -> bytes | None:
        query, selector = _query_of(asked), asked.stack_trace_selector
        if selector.HasField("go_pgo"):
            return await self._reading.build_profile(_scope_of(request), query, write)
        query = _below_calls(query, selector)
        return await self._reading.profile(_scope_of(request), query, write)


# Each name that a call asks for is a statement. A series has fewer labels.
_SERVICE_NAMES = frozenset({SERVICE_NAME, OTHER_SERVICE_NAME})
_MOST_NAMES = 100


def _scope_of(request: Request) -> Scope:
    return context_of(request).caller.scope


def _query_of(
    asked: messages.SelectMergeStacktracesRequest
    | messages.SelectMergeProfileRequest
    | messages.SelectSeriesRequest,
) -> Query:
    query = Query.of(asked.profile_typeID, asked.label_selector, asked.start, asked.end)
    return query if isinstance(asked, messages.SelectSeriesRequest) else replace(query, ids=_ids_of(asked))


def _ids_of(asked: messages.SelectMergeStacktracesRequest | messages.SelectMergeProfileRequest) -> Ids:
    """Return the ids that a call selects by. Raises ParameterInvalid."""
    profiles, traces, spans = (
        parse_ids(name, getattr(asked, name, ()), digits)
        for name, digits in (
            ("profile_id_selector", DIGITS),
            ("trace_id_selector", DIGITS),
            ("span_selector", SPAN_DIGITS),
        )
    )
    return Ids(profiles, RequestIds(traces, spans))


_EXEMPLARS: Mapping[int, ExemplarKind] = MappingProxyType(
    {
        messages.EXEMPLAR_TYPE_UNSPECIFIED: "",
        messages.EXEMPLAR_TYPE_NONE: "",
        messages.EXEMPLAR_TYPE_INDIVIDUAL: "profile",
        messages.EXEMPLAR_TYPE_SPAN: "span",
    }
)


def _exemplars_of(asked: messages.SelectSeriesRequest) -> ExemplarKind:
    """Return the kind of exemplars that a call asks for. Raises ParameterInvalid."""
    if asked.exemplar_type not in _EXEMPLARS:
        raise ParameterInvalid(f"exemplar_type: {asked.exemplar_type} is unknown; give INDIVIDUAL or SPAN")
    return _EXEMPLARS[asked.exemplar_type]


def _below_calls(query: Query, selector: messages.StackTraceSelector) -> Query:
    """Return the query of only those stacks that the selector selects."""
    return replace(query, calls=tuple(call.name for call in selector.call_site))


def _series_message(found: list[tuple[GroupLabels, Points]]) -> messages.SelectSeriesResponse:
    return messages.SelectSeriesResponse(
        series=[
            messages.Series(
                labels=_pairs(labels),
                points=[
                    messages.Point(
                        value=point.value,
                        timestamp=point.time,
                        exemplars=[] if point.exemplar is None else [_exemplar_message(point.exemplar)],
                    )
                    for point in points
                ],
            )
            for labels, points in found
        ]
    )


def _exemplar_message(found: PointExemplar) -> messages.Exemplar:
    return messages.Exemplar(
        timestamp=found.time,
        profile_id=found.profile,
        span_id=found.span,
        trace_id=found.trace,
        value=found.value,
        labels=_pairs(found.labels),
    )


def _pairs(labels: GroupLabels) -> list[messages.LabelPair]:
    return [messages.LabelPair(name=name, value=value) for name, value in labels]


def _distinct(field: str, asked: Iterable[str]) -> list[str]:
    """Return the names of labels that a call asks for, each once. Raises ParameterInvalid."""
    names = [*dict.fromkeys(asked)]
    if len(names) > _MOST_NAMES:
        raise ParameterInvalid(f"{field}: {len(names):,} names of labels; the limit is {_MOST_NAMES}")
    return names


def _values(match: Match, name: str) -> list[str]:
    """Return the distinct values of a label, sorted."""
    if name in TYPE_LABELS:
        return sorted({type_.labels[name] for type_ in match.profile_types})
    if name in _SERVICE_NAMES:
        stored = (series for series in match.names.stored if series.id in match.series)
        return sorted({match.names.service_name(series) for series in stored})
    if is_hidden(name) or not match.series:
        return []
    return match.names.index.values(match.ids, match.names.spelled(name))


class _LabelSet(NamedTuple):
    """The profile types of a series, the name of its service, and the values of other labels."""

    types: tuple[ProfileType, ...]
    service: str
    values: tuple[str, ...]


def _label_sets(match: Match, names: Sequence[str], most: int) -> list[tuple[tuple[str, str], ...]]:
    """Return the distinct sets of these labels, or of all if no name is given, sorted by value."""
    known: Series = match.names
    if not names:
        keys = known.index.keys(match.ids) if match.series else []
        seen = filterfalse(is_hidden, keys)
        names = [*dict.fromkeys(["__profile_type__", "__name__", SERVICE_NAME, *seen])]
    check_labels(len(names), most)
    own = {name: known.labels(name) for name in names if name != SERVICE_NAME and not is_hidden(name)}
    by_type = [name for name in names if name in TYPE_LABELS]
    of_series: set[_LabelSet] = set()
    for series in known.stored:
        types = match.series.get(series.id)
        if types is not None:
            service = "" if _SERVICE_NAMES.isdisjoint(names) else known.service_name(series)
            values = tuple(values.get(series.id, "") for values in own.values())
            of_series.add(_LabelSet(types if by_type else (), service, values))
            check_labels(len(of_series), most)
    sets: set[tuple[tuple[str, str], ...]] = set()
    for each in of_series:
        plain = dict.fromkeys(_SERVICE_NAMES, each.service) | dict(zip(own, each.values, strict=True))
        for labels in [type_.labels for type_ in each.types] if by_type else [{}]:
            every = {**plain, **labels}
            sets.add(tuple((name, every[name]) for name in sorted({*names}) if every.get(name)))
            check_labels(len(sets), most)
    return sorted(filter(None, sets))
