"""Selections: the query parameters that select profiles, by service, type, labels and time, and samples of
them, and that say in which form their merge is wanted.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime

from pprof_merge import FORMATS, Weighting
from pprof_merge.analysis import LatencyRange
from pprof_merge.formats import Format
from pprof_merge.merging import (
    PLAIN_WEIGHTING,
    RequestIds,
    WeightingInvalid,
    parse_half_life,
    parse_weight,
)
from starlette.requests import Request

from pgo_collector.errors import NoSuchWeighting, ParameterInvalid, UnknownFormat
from pgo_collector.http.auth import context_of
from pgo_collector.http.routing import first_values
from pgo_collector.model.ids import ANY_ID, DIGITS, SPAN_DIGITS, Ids, parse_ids
from pgo_collector.model.name_patterns import ALL_NAMES, LONGEST_PATTERN, NamePatterns
from pgo_collector.model.profile_types import CPU, TYPES
from pgo_collector.model.selection import Focus, Matcher, Selection
from pgo_collector.model.series import (
    EVERY_SERVICE,
    SERVICE_PATTERN,
    Series,
    parse_labels,
    sent_labels,
)
from pgo_collector.model.services import MOST_SERVICES, ServiceWeights, parse_weights, services_of

_SERVICE = re.compile(SERVICE_PATTERN)
_MOST_MATCHERS = 32
_LONGEST_SAMPLE_TYPE = 200
# The digits of a second's fraction that `datetime` drops.
_NANOS = re.compile(r"(?<=[.,]\d{6})\d{1,3}")
_LATENCY = re.compile(r"(?P<number>[0-9]{1,19})(?P<unit>ns|us|µs|ms|s)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_BASE = "base_"
_ALL, _STABLE = "all", "stable"
_MICROSECONDS = 10**6
# Starlette decodes bytes that aren't UTF-8 to this, so different labels would become the same.
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def service_of(request: Request) -> str:
    """Return the service that a request is about, which `auth` has found. Raises ParameterInvalid."""
    return _service(context_of(request).service)


def services_in(request: Request) -> str:
    """Return the service that a request is about, or several as one name. Raises ParameterInvalid."""
    service = context_of(request).service
    names = services_of(service)
    if len(names) > MOST_SERVICES:
        raise ParameterInvalid(f"service: give no more than {MOST_SERVICES}")
    for name in names:
        _service(name)
    return service


def weights_of(request: Request, service: str) -> ServiceWeights:
    """Return how much each of several services counts: `weights=a:2,b:1`. Raises ParameterInvalid."""
    given = first_values(request).get("weights")
    return parse_weights(given, service) if given else ()


def fleet_service_of(request: Request) -> str:
    """Return the service that a request is about, or EVERY_SERVICE. Raises ParameterInvalid."""
    is_every = context_of(request).service == EVERY_SERVICE
    return EVERY_SERVICE if is_every else service_of(request)


def type_of(request: Request) -> str:
    """Return the type that a request is about, CPU if it names none. Raises ParameterInvalid."""
    type_ = next(iter(request.query_params.getlist("type")), "") or CPU
    if type_ not in TYPES:
        raise ParameterInvalid(f"unknown type {type_[:50]!r}; give one of {', '.join(TYPES)}")
    return type_


def series_of(request: Request) -> Series:
    """Return the series of a submit: `service`, `type`, `labels=k=v,…`. Raises ParameterInvalid."""
    service, type_ = _service(context_of(request).service), type_of(request)
    labels = parse_labels(",".join(labels_in(request)))
    return Series(service, type_, sent_labels(service, type_, labels.items()))


def labels_in(request: Request, prefix: str = "") -> list[str]:
    """Return the values of the parameter `labels`. Raises ParameterInvalid."""
    texts = request.query_params.getlist(f"{prefix}labels")
    if any(_REPLACED in text for text in texts):
        raise ParameterInvalid(f"{prefix}labels: not UTF-8")
    return texts


def selection_of(request: Request) -> Selection:
    """Return the selection of a request: `service`, `type`, `labels`, and `from`, `to` or `last`.

    Raises ParameterInvalid.
    """
    return selection_in(request, _service(context_of(request).service))


def fleet_selection_of(request: Request) -> Selection:
    """Return the selection of a request, of one service or of EVERY_SERVICE. Raises ParameterInvalid."""
    if context_of(request).service != EVERY_SERVICE:
        return selection_of(request)
    return selection_in(request, EVERY_SERVICE)


def selection_in(request: Request, service: str) -> Selection:
    """Return the selection of a request in a service, or in several. Raises ParameterInvalid."""
    begin, end = times_of(request)
    return Selection(service, type_of(request), _matchers(request), begin, end, ids_of(request))


def base_of(request: Request, selection: Selection) -> Selection:
    """Return the base that a selection is compared with: `base_service`, `base_labels`, and `base_from`,
    `base_to` or `base_last`.

    Parameters that aren't given are those of the selection, but for ids: samples of a request are compared
    with those of all. Raises ParameterInvalid, also if the base is the selection itself.
    """
    given = {name for name in request.query_params if name.startswith(_BASE)}
    base = replace(selection, ids=ANY_ID)
    if f"{_BASE}service" in given:
        base = replace(base, service=_service(first_values(request).get(f"{_BASE}service") or ""))
    if f"{_BASE}labels" in given:
        base = replace(base, matchers=_matchers(request, _BASE))
    if given & {f"{_BASE}{name}" for name in ("from", "to", "last")}:
        begin, end = times_of(request, _BASE)
        base = replace(base, begin=begin, end=end)
    if base == selection:
        raise ParameterInvalid(
            "the base is the selection itself; give base_service, base_labels, base_from, base_to"
            " or base_last"
        )
    return base


def times_of(request: Request, prefix: str = "") -> tuple[int | None, int | None]:
    """Return the begin and the end (not included) of a selection, in ns since 1970; None for no bound.

    Raises ParameterInvalid.
    """
    begin, end, last = map(first_values(request).get, (f"{prefix}from", f"{prefix}to", f"{prefix}last"))
    end_nanos = parse_time(end, f"{prefix}to") if end else None
    if not last:
        begin_nanos = parse_time(begin, f"{prefix}from") if begin else None
        if begin_nanos is not None and end_nanos is not None and begin_nanos > end_nanos:
            raise ParameterInvalid(f"{prefix}from is after {prefix}to; give the earlier time in {prefix}from")
        return begin_nanos, end_nanos
    if begin:
        raise ParameterInvalid(f"give {prefix}last or {prefix}from, not both")
    try:
        nanos = parse_half_life(last)
    except WeightingInvalid:
        raise ParameterInvalid(
            f"{prefix}last={last[:50]}: not a length of time; write a number from 1 to 999999 and a unit,"
            " s, m, h, d or w, as in 7d"
        ) from None
    if end_nanos is None:  # profiles of a host whose clock is ahead aren't among the last ones
        end_nanos = time.time_ns() + 1
    return max(end_nanos - nanos, -(1 << 63)), end_nanos


def ids_of(request: Request) -> Ids:
    """Return the ids that a request selects by: `profile_id`, `trace_id`, `span_id`. Raises ParameterInvalid.

    Each may be given several times, and have several values with commas between them.
    """
    profiles, traces, spans = (
        parse_ids(name, filter(None, ",".join(request.query_params.getlist(name)).split(",")), digits)
        for name, digits in (("profile_id", DIGITS), ("trace_id", DIGITS), ("span_id", SPAN_DIGITS))
    )
    return Ids(profiles, RequestIds(traces, spans))


def latencies_of(request: Request) -> LatencyRange:
    """Return the latencies from `latency_from` on and below `latency_to`. Raises ParameterInvalid."""
    given, parameters = first_values(request), ("latency_from", "latency_to")
    begin, end = (_latency(name, given[name]) if given.get(name) else None for name in parameters)
    if begin is not None and end is not None and begin >= end:
        raise ParameterInvalid("latency_to: give a longer latency than in latency_from")
    return LatencyRange(begin, end)


def every_label_of(request: Request) -> bool:
    """Return whether a request wants all labels of samples: `sample_labels=all`. Raises ParameterInvalid."""
    given = first_values(request).get("sample_labels") or _STABLE
    if given not in {_STABLE, _ALL}:
        raise ParameterInvalid(
            f"sample_labels={given[:50]}: give {_ALL}, or {_STABLE} to leave out those that number requests"
        )
    return given == _ALL


def symbolize_of(request: Request) -> bool:
    """Return whether a request wants names for addresses: `symbolize=true`. Raises ParameterInvalid."""
    given = first_values(request).get("symbolize") or "false"
    if given not in {"true", "false"}:
        raise ParameterInvalid(f"symbolize={given[:50]}: give true or false")
    return given == "true"


def patterns_of(request: Request) -> NamePatterns:
    """Return the patterns `focus`, `ignore` and `hide`. Raises ParameterInvalid."""
    given = first_values(request)
    patterns = NamePatterns(*(given.get(name, "") for name in NamePatterns._fields))
    if patterns != ALL_NAMES:
        patterns.check()
    return patterns


def trim_path_of(request: Request) -> tuple[str, ...]:
    """Return the folders that are left out of paths: `trim_path`. Raises ParameterInvalid."""
    text = first_values(request).get("trim_path") or ""
    folders = tuple(text.split(":")) if text else ()
    if len(text) > LONGEST_PATTERN or len(folders) > _MOST_MATCHERS:
        raise ParameterInvalid(
            f"trim_path: give up to {_MOST_MATCHERS} folders, with `:` between them, of up to"
            f" {LONGEST_PATTERN:,} characters together"
        )
    return folders


def format_named(name: str) -> Format:
    """Return the format with this name. Raises UnknownFormat."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownFormat(f"unknown format {name[:50]!r}; give one of {', '.join(FORMATS)}") from None


def weighting_named(weight: str | None, half_life: str | None, services: ServiceWeights = ()) -> Weighting:
    """Return the weighting of the parameters `weight` and `half_life`; None is the default.

    Raises NoSuchWeighting.
    """
    parameter = "weight"
    try:
        by = PLAIN_WEIGHTING.by if weight is None else parse_weight(weight)
        parameter = "half_life"
        nanos = PLAIN_WEIGHTING.half_life if half_life is None else parse_half_life(half_life)
        return Weighting(by, nanos, services)
    except WeightingInvalid as error:
        raise NoSuchWeighting(f"{parameter}: {error}") from None


def sample_type_of(request: Request) -> str:
    """Return the name of the sample type that a request is about, or "". Raises ParameterInvalid."""
    name = first_values(request).get("sample_type") or ""
    if len(name) > _LONGEST_SAMPLE_TYPE:
        raise ParameterInvalid(f"sample_type: the name is longer than {_LONGEST_SAMPLE_TYPE} characters")
    return name


def focus_of(request: Request) -> Focus:
    """Return the part of the selected profiles that a request is about: `latency_from`, `latency_to`,
    `sample_type`, `focus`, `ignore`, `hide` and `trim_path`.

    Raises ParameterInvalid.
    """
    return Focus(latencies_of(request), sample_type_of(request), patterns_of(request), trim_path_of(request))


def _latency(parameter: str, text: str) -> int:
    match = _LATENCY.fullmatch(text)
    nanos = int(match["number"]) * _UNITS[match["unit"]] if match else 1 << 63
    if nanos >= 1 << 63:
        raise ParameterInvalid(
            f"{parameter}={text[:50]}: not a latency; write a whole number and a unit, ns, us, ms or s, as in"
            " 5ms, below 2^63 ns"
        )
    return nanos


def parse_time(text: str, parameter: str) -> int:
    """Return a time in ns since 1970, from a date or an RFC 3339 time; without a zone it is in UTC.

    Digits below a nanosecond are dropped. Raises ParameterInvalid.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ParameterInvalid(
            f"{parameter}={text[:50]}: not a time; write 2026-11-20, 2026-11-20T15:04:05 (UTC) or RFC 3339"
        ) from None
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    nanos = ((since.days * 86400 + since.seconds) * _MICROSECONDS + since.microseconds) * 1000
    if finer := _NANOS.search(text):
        nanos += int(finer[0].ljust(3, "0"))
    if not -(1 << 63) <= nanos < 1 << 63:
        raise ParameterInvalid(f"{parameter}={text[:50]}: give a time from 1678 to 2261")
    return nanos


def _service(service: str) -> str:
    if not _SERVICE.fullmatch(service):
        raise ParameterInvalid(
            f"service={service[:50]}: a name has up to 200 letters, digits, '.', '_' and '-'"
        )
    return service


def _matchers(request: Request, prefix: str = "") -> tuple[Matcher, ...]:
    texts = [text for listed in labels_in(request, prefix) for text in listed.split(",") if text]
    if len(texts) > _MOST_MATCHERS:
        raise ParameterInvalid(f"{prefix}labels: give no more than {_MOST_MATCHERS}")
    return tuple(map(Matcher.parse, texts))
