"""Forms: what a merge is served as, which is a format of what rules leave of it, by weights or without."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge import (
    FORMATS,
    PLAIN_WEIGHTING,
    Format,
    Rules,
    Weighting,
    WeightingInvalid,
    parse_half_life,
    parse_weight,
)

from pgo_collector.errors import NoSuchWeighting, UnknownFormat

_PLAIN = "pprof"


@dataclass(frozen=True, slots=True)
class Rendition:
    """A format, of what rules leave of the merge; and by what the profiles count in that."""

    format: Format
    rules: Rules
    weighting: Weighting = PLAIN_WEIGHTING

    @property
    def is_plain(self) -> bool:
        """Whether it is the merge itself, as it is kept."""
        return self.format.name == _PLAIN and not self.rules and self.weighting.is_plain

    @property
    def depth(self) -> int | None:
        """How many of each stack's locations, from the leaf on, it needs; None: all, as rules do."""
        return None if self.rules else self.format.depth


def format_named(name: str = _PLAIN) -> Format:
    """The format of that name. Raises UnknownFormat."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownFormat(f"format={name[:50]}: there is none; there are {', '.join(FORMATS)}") from None


def weighting_named(weight: str | None, half_life: str | None) -> Weighting:
    """The weighting of two parameters, as far as they are given. Raises NoSuchWeighting."""
    parameter = "weight"
    try:
        by = PLAIN_WEIGHTING.by if weight is None else parse_weight(weight)
        parameter = "half_life"
        return Weighting(by, PLAIN_WEIGHTING.half_life if half_life is None else parse_half_life(half_life))
    except WeightingInvalid as error:
        raise NoSuchWeighting(f"{parameter}: {error}") from None


# The merge itself.
PLAIN_RENDITION = Rendition(format_named(), Rules())
