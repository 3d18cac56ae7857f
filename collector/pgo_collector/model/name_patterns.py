"""Patterns of clients: regular expressions in RE2's syntax, which is Go's, and the names that they choose.

RE2 takes time that is linear in the text, and memory within a bound; a request has a bound on its time, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from pprof_merge import Profile
from pprof_merge.analysis import NameMatcher, focus_names, shown_name

from pgo_collector.errors import ParameterInvalid
from pgo_collector.on_first_use import OnFirstUse

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # it has no stubs
else:  # with C++'s library it takes 2.5 MB, and few requests have a pattern
    re2 = OnFirstUse("re2")

LONGEST_PATTERN = 1000
# Memory, in bytes, of one compiled expression; a pattern such as (a{100}){100} needs more and is refused.
_PATTERN_MEMORY = 1 << 20


@dataclass
class PatternTime:
    """CPU time that the patterns of one request may take for the names of one profile, in seconds.

    It grows with the size of an expression, too, and many long names may be stored.
    """

    seconds: float = inf


# The time in this process; a worker process sets it as it starts.
PATTERN_TIME = PatternTime()


class NamePatterns(NamedTuple):
    """Filters of stacks by name: `focus`, `ignore` and `hide` of `go tool pprof`; empty for no pattern."""

    focus: str = ""
    ignore: str = ""
    hide: str = ""

    @property
    def is_everything(self) -> bool:
        """Return whether there is no pattern, so that all is kept."""
        return not any(self)

    def check(self) -> None:
        """Raise ParameterInvalid if a pattern can't be used."""
        for name, pattern in self.given():
            try:
                compiled_pattern(pattern)
            except ParameterInvalid as error:
                raise ParameterInvalid(f"{name}: {error}") from None

    def given(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each pattern there is."""
        yield from ((name, pattern) for name, pattern in self._asdict().items() if pattern)

    def apply(self, profile: Profile) -> Profile:
        """Return the part of a profile that the patterns keep.

        Raises ParameterInvalid, also if they take too long.
        """
        end = process_time() + PATTERN_TIME.seconds
        return focus_names(profile, **{name: _matcher(pattern, end) for name, pattern in self.given()})


ALL_NAMES = NamePatterns()


@lru_cache(maxsize=8)  # each takes up to _PATTERN_MEMORY
def compiled_pattern(pattern: str) -> Any:
    """Return a compiled expression; RE2's time is linear in the text. Raises ParameterInvalid."""
    if len(pattern) > LONGEST_PATTERN:
        raise ParameterInvalid(f"a regular expression is longer than {LONGEST_PATTERN:,} characters")
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ParameterInvalid(f"the regular expression {pattern[:50]!r} can't be used: {text}") from None


def _matcher(pattern: str, end: float) -> NameMatcher:
    """Return whether a name has a match in it, as a function that works until a time of the process's CPU.

    Names are matched as views show them, as `go tool pprof` does. A pattern may be a mangled name.
    """
    name = shown_name(pattern)
    search = compiled_pattern(pattern if name == pattern else re2.escape(name)).search

    def matches(name: str) -> bool:
        if process_time() > end:
            raise ParameterInvalid(
                f"focus, ignore, hide: they take more than {PATTERN_TIME.seconds:g} seconds"
                " (PGOF_TASK_SECONDS or PGOF_PATTERN_SECONDS) for these names; write simpler expressions"
            )
        return search(shown_name(name)) is not None

    return matches
