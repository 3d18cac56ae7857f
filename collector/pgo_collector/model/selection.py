"""Selections: which of the stored profiles are meant, by service, type, labels and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from pgo_collector.model.series import Series

# In place of a service's name, which it can't be, for all that there are.
EVERY_SERVICE = "*"
# The last time that a profile can have, in ns since 1970: nothing comes after it.
_LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Matcher:
    """A label has one of these values, or if `is_negated` none; one that isn't there has the value ""."""

    key: str
    values: frozenset[str]
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """Profiles of one type of one service whose labels all matchers fit, taken from `begin` until before
    `end`, in ns since 1970, None where there is no bound.

    A combined profile is one as soon as part of its time is in between, and where a roll-up dropped labels,
    as soon as the matchers fit those of some profile inside. The service may be EVERY_SERVICE for questions
    about the whole fleet; a merge is of one.
    """

    service: str
    type: str
    matchers: tuple[Matcher, ...] = ()
    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, series: Series) -> Selection:
        """Just what is in a series, and in those of the same service and type with further labels."""
        return cls(
            series.service,
            series.type,
            tuple(Matcher(key, frozenset([value])) for key, value in series.labels),
        )

    def up_to(self, last: int) -> Self:
        """What of it was taken until then, that time included."""
        return replace(self, end=None if last == _LAST else last + 1)


@dataclass(frozen=True, slots=True)
class Coarse:
    """Where a selection is finer than what is left: the ids of the combined blobs in it that have more in
    them than is meant, and of the labels that it names those by which they have, since roll-ups dropped them.
    """

    blobs: frozenset[int] = frozenset()
    labels: tuple[str, ...] = ()
