"""Selections: the stored profiles that a request asks for, by service, type, labels and time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Self
from urllib.parse import quote

from pprof_merge.analysis import ALL_LATENCIES, LatencyRange

from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.ids import ANY_ID, Ids
from pgo_collector.model.name_patterns import ALL_NAMES, NamePatterns
from pgo_collector.model.series import Series, unquote_part

# The latest time that a profile can have, in ns since 1970.
_LAST = (1 << 63) - 1
_MATCHER = re.compile(r"(?P<key>[^=!]+)(?P<operator>!?=)(?P<values>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label: it has one of these values, or none of them if `is_negated`.

    A label that a series doesn't have has the value "".
    """

    key: str
    values: frozenset[str]
    is_negated: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the condition in percent-encoded `key=value` or `key!=value`, or with several values, `a|b`.

        Raises ParameterInvalid.
        """
        match = _MATCHER.fullmatch(text)
        if match is None:
            raise ParameterInvalid(f"labels: {text[:50]!r}: write key=value, key!=value or key=one|another")
        values = frozenset(map(unquote_part, match["values"].split("|")))
        return cls(unquote_part(match["key"]), values, match["operator"] == "!=")

    @property
    def text(self) -> str:
        """Return the condition as in the parameter `labels`: `version!=1.4|1.5`, percent-encoded."""
        values = "|".join(quote(value, safe="") for value in sorted(self.values))
        return f"{quote(self.key, safe='')}{'!=' if self.is_negated else '='}{values}"

    def includes(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels of a series, none of which a roll-up has dropped, fulfil it."""
        return (labels.get(self.key, "") in self.values) != self.is_negated

    def negated(self) -> Self:
        """Return the opposite condition."""
        return replace(self, is_negated=not self.is_negated)


@dataclass(frozen=True, slots=True)
class Selection:
    """The profiles of one service and type that match all `matchers` and were taken at `begin` or later, and
    before `end`. Times are in ns since 1970; None is no bound.

    A combined profile is selected if part of its time is in between. If a roll-up dropped its labels, it is
    selected if any profile inside matches. The service may be EVERY_SERVICE in queries about the whole fleet;
    a merge has one service.

    With `ids`, it only has the profiles with some of these ids, and of their samples those of these requests.
    """

    service: str
    type: str
    matchers: tuple[Matcher, ...] = ()
    begin: int | None = None
    end: int | None = None
    ids: Ids = ANY_ID

    @classmethod
    def of(cls, series: Series) -> Selection:
        """Return the selection of a series, and of the same service's and type's series with more labels."""
        return cls(
            series.service,
            series.type,
            tuple(Matcher(key, frozenset([value])) for key, value in series.labels),
        )

    def up_to(self, last: int) -> Self:
        """Return this selection, ended at `last`, in ns since 1970 and included."""
        return replace(self, end=None if last == _LAST else last + 1)


class Focus(NamedTuple):
    """The part of the selected profiles that a question is about: latencies, one sample type, and names.

    Paths of files are shown without the folders of `trim_path`.

    The sample type has a name. Without one, or for profiles that don't have it, it is the one that `go tool
    pprof` shows.
    """

    latencies: LatencyRange = ALL_LATENCIES
    sample_type: str = ""
    patterns: NamePatterns = ALL_NAMES
    trim_path: tuple[str, ...] = ()


# All latencies and names, and the usual sample type.
USUAL = Focus()


@dataclass(frozen=True, slots=True)
class Coarse:
    """How a selection is finer than the stored profiles.

    `blobs` are the ids of selected combined blobs that also hold profiles outside the selection. `labels` are
    the labels in the selection that can't tell these profiles apart, since roll-ups dropped them.
    """

    blobs: frozenset[int] = frozenset()
    labels: tuple[str, ...] = ()


# Of a selection that the stored profiles match exactly.
EXACT = Coarse()
