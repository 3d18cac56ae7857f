"""Forms: what a merge is served as, which is a format of what rules leave of it."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge.formats import FORMATS, Format
from pprof_merge.rules import Rules

from pgo_collector.errors import UnknownFormat

_PLAIN = "pprof"


@dataclass(frozen=True, slots=True)
class Form:
    """A format, of what rules leave of the merge."""

    format: Format
    rules: Rules

    @property
    def is_plain(self) -> bool:
        """Whether it is the merge itself, as it is kept."""
        return self.format.name == _PLAIN and not self.rules


def format_named(name: str = _PLAIN) -> Format:
    """The format of that name. Raises UnknownFormat."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownFormat(f"format={name[:50]}: there is none; there are {', '.join(FORMATS)}") from None
