"""Function seconds: what the functions that rules choose take in one profile, while its columns are here.

A worker asks this of a profile that it validates. Which rules a name matches is kept, so that one more
profile of a program costs a fraction of what decoding it does.
"""

from __future__ import annotations

from functools import lru_cache
from time import thread_time
from typing import Literal, NamedTuple, get_args

from pprof_merge import Header, Limits, ProfileError, decode
from pprof_merge.analysis import (
    NAMES_OF_FRAMES,
    Frame,
    as_shown,
    default_column,
    masked_values,
    shown_function,
    unit_called,
)
from pprof_merge.codec import ProfileColumns

from pgo_collector.model.name_patterns import compiled_pattern

# CPU time, in seconds, that the new names in one body may take: 10,000 and more. The names that were matched
# until then are kept, so the next profile of the program gets further.
_MOST_SECONDS = 0.1
# Functions of a profile that drops frames and is measured all the same. It is decoded again and made ready as
# for a view, where nothing else bounds the time.
_MOST_FUNCTIONS = 5000
# Bytes that the names which are kept may take, with what an entry takes besides.
_MOST_BYTES = 32 << 20
_ENTRY_BYTES = 150
# Stands for any name in the system that isn't the name itself.
_OTHER = b"\0"

# Plain tuples, which cost a fraction of what `FunctionPattern`s do on the way to a worker.
Patterns = tuple[tuple[Literal["function", "package"], str], ...]
# Why a profile could not be measured: no sample type is a time, values are negative or too large
# to be summed, there are too many new names, or a fault.
Failure = Literal["no_time", "values", "new_names", "fault"]
FAILURES: tuple[Failure, ...] = get_args(Failure)


class FunctionSeconds(NamedTuple):
    """The seconds of all stacks of a profile, and for each pattern those of the stacks that have a function
    which matches, and those of the stacks whose leaf does: (n_patterns,) each.
    """

    profiled: float
    inside: tuple[float, ...]
    own: tuple[float, ...]


# None if there is no pattern.
Measured = FunctionSeconds | Failure | None


class Measuring:
    """Measures the profiles of one body by patterns."""

    def __init__(self, patterns: Patterns, limits: Limits) -> None:
        self._patterns = patterns
        self._limits = limits
        self._names = _names_by(patterns)
        self._names.seconds_left = _MOST_SECONDS

    def measured(self, header: Header, columns: ProfileColumns, content: bytes) -> Measured:
        """Return what a profile comes to, given its header, columns and bytes. Names are as views show them.

        It raises nothing: whatever a profile has, it costs no more than its part of a metric.
        """
        if not self._patterns:
            return None
        try:
            return self._measured(header, columns, content)
        except _TooManyNames:
            return "new_names"
        except ProfileError:
            return "values"
        except Exception:  # noqa: BLE001 - the profile itself is sound, and is stored
            _names_by.cache_clear()
            return "fault"

    def _measured(self, header: Header, columns: ProfileColumns, content: bytes) -> FunctionSeconds | Failure:
        timed = _timed_column(header)
        if timed is None:
            return "no_time"
        column, nanos = timed
        if header.drop_frames:
            if self._names.seconds_left <= 0 or columns.n_functions > _MOST_FUNCTIONS:
                return "new_names"
            begin = thread_time()
            columns = as_shown(decode(content, self._limits)).columns
            self._names.seconds_left -= thread_time() - begin
        found = masked_values(columns, column, self._names.masks, len(self._patterns))
        inside, own = (
            tuple(nanos * value / 10**9 for value in values) for values in (found.inside, found.leaf)
        )
        return FunctionSeconds(nanos * found.total / 10**9, inside, own)


def _timed_column(header: Header) -> tuple[int, int] | None:
    """Return the column that is a time, and how many ns its unit is; None if no sample type is a time.

    Of several it is the one that `go tool pprof` shows, or else the last.
    """
    units = [unit_called(each.unit.decode(errors="replace")) for each in header.sample_types]
    timed = {
        column: unit.factor
        for column, unit in enumerate(units)
        if unit is not None and unit.base == "nanoseconds"
    }
    if not timed:
        return None
    column = default_column(header)
    column = column if column in timed else max(timed)
    return column, timed[column]


class _TooManyNames(Exception):
    """A body has more new names than there is time for."""


class _Names:
    """The masks of names by patterns: bit i is set if pattern i matches. Fewer patterns than bits are taken.

    `masks` are as `masked_values` takes them. They are emptied when they take too much memory.
    """

    def __init__(self, patterns: Patterns) -> None:
        self.seconds_left = 0.0
        self.masks: list[dict[bytes, int]] = [_Masks(self, kind) for kind in range(3)]
        self._searches = [(of, compiled_pattern(text).search) for of, text in patterns]
        self._nbytes = 0

    def mask_of(self, name: bytes, kind: int) -> int:
        """Return the mask of a name. Raises _TooManyNames."""
        if self.seconds_left <= 0:
            raise _TooManyNames
        begin = thread_time()
        self._nbytes += len(name) + _ENTRY_BYTES
        if self._nbytes > _MOST_BYTES:
            self._nbytes = 0
            for masks in self.masks:
                masks.clear()
        shown = shown_function(name, (b"", name, _OTHER)[kind]).decode(errors="backslashreplace")
        texts = {"function": shown, "package": NAMES_OF_FRAMES["package"](Frame(shown, "", 0))}
        found = [search(texts[of]) is not None for of, search in self._searches] if name else []
        self.seconds_left -= thread_time() - begin
        return sum(matches << bit for bit, matches in enumerate(found))


class _Masks(dict[bytes, int]):
    """The masks of names of one kind, each found when it is first asked for."""

    def __init__(self, names: _Names, kind: int) -> None:
        super().__init__()
        self._names = names
        self._kind = kind

    def __missing__(self, name: bytes) -> int:
        mask = self[name] = self._names.mask_of(name, self._kind)
        return mask


@lru_cache(maxsize=2)  # those of a file, and of the one that replaces it
def _names_by(patterns: Patterns) -> _Names:
    return _Names(patterns)
