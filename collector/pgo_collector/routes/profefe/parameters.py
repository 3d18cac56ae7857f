"""The query parameters of profefe's API: service, type, labels, from, to, last, limit and created_at."""

from __future__ import annotations

import re
import time

from starlette.requests import Request

from pgo_collector.errors import ParameterInvalid
from pgo_collector.http.auth import check_scope, context_of
from pgo_collector.http.routing import first_values
from pgo_collector.http.selections import labels_in, parse_time, service_of, times_of, type_of
from pgo_collector.model.profile_types import TYPES
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import Series, parse_labels, sent_labels

_LIMIT = re.compile(r"[+-]?[0-9]{1,18}")


def series_of(request: Request) -> Series:
    """Return the series of a submit; neither service nor type has a default.

    Raises ParameterInvalid or KeyOutOfScope.
    """
    service, type_ = _service_of(request), _type_of(request)
    labels = parse_labels(_labels_text(request))
    return Series(service, type_, sent_labels(service, type_, labels.items()))


def created_nanos_of(request: Request) -> int | None:
    """Return `created_at` in ns since 1970, None if it isn't given. Raises ParameterInvalid."""
    text = first_values(request).get("created_at")
    return parse_time(text, "created_at") if text else None


def selection_of(request: Request) -> Selection:
    """Return the selection of a request that must name a type. Raises ParameterInvalid or KeyOutOfScope."""
    return _selection(request, _type_of(request))


def selections_of(request: Request) -> list[Selection]:
    """Return the selection of a request, or one for each type if it names none.

    Raises ParameterInvalid or KeyOutOfScope.
    """
    types = [type_of(request)] if first_values(request).get("type") else TYPES
    return [_selection(request, type_) for type_ in types]


def limit_of(request: Request) -> int | None:
    """Return how many of the newest profiles are wanted; None for all, as with 0 or less.

    Raises ParameterInvalid.
    """
    text = first_values(request).get("limit") or "0"
    if not _LIMIT.fullmatch(text):
        raise ParameterInvalid(f"limit={text[:50]}: not a whole number")
    return max(int(text), 0) or None


def _selection(request: Request, type_: str) -> Selection:
    """Return a selection as profefe reads it: `to` is included, and each label has one value."""
    service = _service_of(request)
    labels = sorted(parse_labels(_labels_text(request)).items())
    begin, end = times_of(request)
    if begin is not None and end is not None and begin > end:
        raise ParameterInvalid("from is after to")
    if end is None and limit_of(request) is not None:
        end = time.time_ns()  # the newest profiles are those up to now: a host's clock may be ahead
    matchers = tuple(Matcher(key, frozenset([value])) for key, value in labels)
    selection = Selection(service, type_, matchers, begin)
    return selection if end is None else selection.up_to(end)


def _service_of(request: Request) -> str:
    service = first_values(request).get("service")
    if not service:
        raise ParameterInvalid("service is missing")
    check_scope(request, service)
    context_of(request).service = service
    return service_of(request)


def _type_of(request: Request) -> str:
    if not first_values(request).get("type"):
        raise ParameterInvalid("type is missing")
    return type_of(request)


def _labels_text(request: Request) -> str:
    """Return the labels as `k=v,k2=v2`; a part without a key is left out, one without `=` has an empty value.

    Agents encode keys and values as in a query string, where a plus is a space.
    """
    text = next(iter(labels_in(request)), "").replace("+", " ")
    parts = (part.partition("=") for part in text.split(","))
    return ",".join(f"{key}={value}" for key, _, value in parts if key.strip())
