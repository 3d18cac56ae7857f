"""Matching: which stored series and profile types a client's selectors mean, as our selections.

A series has its own labels, `service_name`, and those of each of its profile types, such as `__name__`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pgo_collector.catalog.series_index import SeriesIndex, StoredSeries
from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import (
    PROFILE_NAME,
    SERVICE_NAME,
    is_hidden,
    name_of_profile,
    name_of_service,
)
from pgo_collector.queries.grafana.profile_types import (
    PROFILE_TYPES,
    TYPE_LABELS,
    ProfileType,
)
from pgo_collector.queries.grafana.selector import LabelMatcher

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1

Selectors = Sequence[tuple[LabelMatcher, ...]]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of time in ns since 1970: from `begin` on and before `end`; None is no bound."""

    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, start: int, end: int) -> Span:
        """Return the range from one time to another, which is included, in ms since 1970; two zeros for any.

        Raises ParameterInvalid.
        """
        if start == 0 == end:
            return cls()
        if start > end:
            raise ParameterInvalid("start: give a time before end")
        begin, last = (max(_FIRST, min(time * 10**6, _LAST)) for time in (start, end + 1))
        return cls(begin, last)


class KindKey(NamedTuple):
    """Key of a series' profile types: its service and type, and the name of an `other`."""

    service: str
    type: str
    name: str


class Kinds:
    """The profile types of our types, and of those profiles that have to be read to know."""

    def __init__(self, read: Mapping[KindKey, tuple[ProfileType, ...]]) -> None:
        self._read = read
        self._elsewhere: defaultdict[tuple[str, str], dict[ProfileType, None]] = defaultdict(dict)
        for (_, type_, name), types in read.items():
            self._elsewhere[type_, name] |= dict.fromkeys(types)

    def of(self, key: KindKey) -> tuple[ProfileType, ...]:
        """Return the profile types of a series: those listed for its type, and those that were read.

        If no profile of its service was read, they are those that other services have.
        """
        read = self._read.get(key)
        if read is None:
            read = tuple(self._elsewhere.get((key.type, key.name), ()))
        return tuple(dict.fromkeys([*PROFILE_TYPES.get(key.type, ()), *read]))


@dataclass(frozen=True, slots=True)
class Match:
    """Matching series, with their number, and the profile types that match in each of them."""

    series: Mapping[int, tuple[ProfileType, ...]]
    names: Series

    @property
    def ids(self) -> Collection[int] | None:
        """Return the ids of the series; None if they are all that there are in the scope."""
        is_every = len(self.series) == len(self.names.stored) and self.names.span == Span()
        return None if is_every else self.series

    @property
    def profile_types(self) -> list[ProfileType]:
        """Return the distinct profile types, sorted."""
        distinct = dict.fromkeys(self.series.values())
        return sorted({type_ for types in distinct for type_ in types})


class Series:
    """The series of a key's services, which the index has, with profiles in a range of time."""

    def __init__(self, index: SeriesIndex, span: Span, most: int) -> None:
        """Read the series; `most` values of a label may be in a selection."""
        self.index = index
        self.span = span
        self.most = most
        self.stored = index.series(span.begin, span.end)
        self._profile_names = index.values_by_series(PROFILE_NAME)
        self._service_names = index.values_by_series(SERVICE_NAME)

    def kind_key(self, series: StoredSeries) -> KindKey:
        """Return what decides the profile types of a series."""
        name = self._profile_names.get(series.id, "")
        return KindKey(series.service, series.type, name_of_profile(series.type, name))

    def service_name(self, series: StoredSeries) -> str:
        """Return the name that the service was sent with, of which a character may not be in our name."""
        return name_of_service(series.service, self._service_names.get(series.id, ""))

    def labels(self, key: str) -> Mapping[int, str]:
        """Return the values of a label by series. A `_` in the key also stands for a dot."""
        if is_hidden(key):
            return {}
        found = self.index.values_by_series(key)
        if found or "_" not in key:
            return found
        return self.index.values_by_series(self.spelled(key))

    def spelled(self, key: str) -> str:
        """Return a key as it is stored, where clients can only write `_` for a dot."""
        if "_" not in key:
            return key
        return self._spellings.get(key, key)

    @cached_property
    def _spellings(self) -> dict[str, str]:
        keys = self.index.keys(None)
        return {key.replace(".", "_"): key for key in reversed(keys)} | {key: key for key in keys}

    def match(self, selectors: Selectors, kinds: Kinds) -> Match:
        """Return the series that match one of the selectors. Raises ParameterInvalid."""
        found: dict[int, tuple[ProfileType, ...]] = {}
        for matchers in selectors:
            for series, types in self._matching(matchers, kinds):
                known = found.get(series)
                found[series] = types if known is None else (*known, *(t for t in types if t not in known))
        return Match(found, self)

    def _matching(
        self, matchers: tuple[LabelMatcher, ...], kinds: Kinds
    ) -> Iterator[tuple[int, tuple[ProfileType, ...]]]:
        by_type = [matcher for matcher in matchers if matcher.name in TYPE_LABELS]
        by_service = [matcher for matcher in matchers if matcher.name == SERVICE_NAME]
        by_label = [_Values(m, self.labels(m.name)) for m in matchers if m not in {*by_type, *by_service}]
        types_of: dict[KindKey, tuple[ProfileType, ...]] = {}
        is_meant: dict[str, bool] = {}
        for series in self.stored:
            key = self.kind_key(series)
            if key not in types_of:
                types_of[key] = tuple(
                    each
                    for each in kinds.of(key)
                    if all(matcher.matches(each.labels[matcher.name]) for matcher in by_type)
                )
            types = types_of[key]
            if not types:
                continue
            if by_service:
                name = self.service_name(series)
                if name not in is_meant:
                    is_meant[name] = all(matcher.matches(name) for matcher in by_service)
                if not is_meant[name]:
                    continue
            if all(values.match(series.id) for values in by_label):
                yield series.id, types

    def selections(self, matchers: tuple[LabelMatcher, ...], match: Match) -> list[Selection]:
        """Return the selections, one for each service and type, that have the profiles of matching series.

        Raises ParameterInvalid if a selection would have too many values of a label.
        """
        groups: defaultdict[tuple[str, str], list[StoredSeries]] = defaultdict(list)
        others: defaultdict[tuple[str, str], list[StoredSeries]] = defaultdict(list)
        for series in self.stored:
            (groups if series.id in match.series else others)[series.service, series.type].append(series)
        own = [m for m in matchers if m.name != SERVICE_NAME and not is_hidden(m.name)]
        conditions = tuple(self._condition(matcher) for matcher in own)
        selections = []
        for (service, type_), chosen in sorted(groups.items()):
            of_group = [*conditions]
            for key, known in ((SERVICE_NAME, self._service_names), (PROFILE_NAME, self._profile_names)):
                values = {known.get(series.id, "") for series in chosen}
                left = {known.get(series.id, "") for series in others[service, type_]} - values
                if left:
                    of_group.append(self._bounded(Matcher(key, frozenset(values))))
            selections.append(Selection(service, type_, tuple(of_group), self.span.begin, self.span.end))
        return selections

    def _condition(self, matcher: LabelMatcher) -> Matcher:
        key = self.spelled(matcher.name)
        if matcher.operator in {"=", "!="}:
            return Matcher(key, frozenset([matcher.value]), matcher.operator == "!=")
        values = {"", *self.labels(matcher.name).values()}
        matching = frozenset(value for value in values if matcher.matches(value))
        if len(matching) * 2 <= len(values):
            return self._bounded(Matcher(key, matching))
        return self._bounded(Matcher(key, frozenset(values - matching), is_negated=True))

    def _bounded(self, matcher: Matcher) -> Matcher:
        if len(matcher.values) > self.most:
            raise ParameterInvalid(
                f"label selector: {len(matcher.values):,} values of {matcher.key[:50]!r} match;"
                f" the limit is {self.most:,}"
            )
        return matcher


class _Values:
    """The values of one label by series, each of which is matched once."""

    def __init__(self, matcher: LabelMatcher, values: Mapping[int, str]) -> None:
        self._values = values
        self._matches: dict[str, bool] = {}
        self._matcher = matcher

    def match(self, series: int) -> bool:
        """Return whether the label of a series matches."""
        value = self._values.get(series, "")
        if value not in self._matches:
            self._matches[value] = self._matcher.matches(value)
        return self._matches[value]


def check_labels(count: int, most: int) -> None:
    """Raise ParameterInvalid if an answer would have more labels or series than it may."""
    if count > most:
        raise ParameterInvalid(
            f"the answer would have {count:,} labels or series; the limit is {most:,}; select less"
        )
