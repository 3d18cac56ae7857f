"""Format values for people: values of profiles, bytes, shares, ages. Most are filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime

from pprof_merge.analysis import function_in, unit_called

from pgo_collector.queries import answers

MAX_NAME = 240
_TIME = ((3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNT = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_AGES = ((86400 * 2, 86400, "days"), (7200, 3600, "hours"), (120, 60, "minutes"))


def amount(value: int, sample_type: answers.SampleType) -> str:
    """Return a value with its unit: `1.24 s`, `3.1 MiB`, `1,240`."""
    unit = unit_called(sample_type.unit)
    if unit is None:
        return count(value)
    return (nanos if unit.base == "nanoseconds" else size)(value * unit.factor)


def nanos(value: int) -> str:
    """Return a duration, given in ns, with its unit: `1.24 s`."""
    return _scaled(value, _TIME) or f"{value:,} ns"


def size(value: int) -> str:
    """Return a number of bytes with its unit: `3.10 MiB`."""
    return _scaled(value, _BYTES) or f"{value:,} B"


def count(value: int) -> str:
    """Return a count, in full below a million: `1,240`, `3.10 million`."""
    return _scaled(value, _COUNT) or f"{value:,}"


def percent(share: float) -> str:
    """Return a share of 1 as a percentage: `12.3 %`, `1.23 %`."""
    return f"{100 * share:.1f} %" if share >= 0.0995 else f"{100 * share:.2f} %"


def points(difference: float) -> str:
    """Return a difference of shares in percentage points, with its sign: `+1.23`; `0.00` has none."""
    rounded = f"{100 * difference:+.2f}"
    return "0.00" if float(rounded) == 0 else rounded.replace("-", "\N{MINUS SIGN}")


def direction(difference: float) -> str:
    """Return the class of a cell with a difference of shares: `up` or `down`, or "" if it reads `0.00`."""
    return {"+": "up", "\N{MINUS SIGN}": "down"}.get(points(difference)[0], "")


def nothing_in(total: int, whole: int, sample_type: answers.SampleType) -> str:
    """Return why there is nothing to show if a total is 0, else ""; `whole` is the total without filters."""
    if total:
        return ""
    name = cut(sample_type.type, 40)
    if whole:
        return f"The filters leave no stack with a value of {name}."
    return f"All values of {name} in these profiles are 0."


def age(time_nanos: int, now_nanos: int) -> str:
    """Return how long ago a time was: `3 days ago`. Both times are Unix times in ns."""
    seconds = max(0, (now_nanos - time_nanos) // 10**9)
    for least, unit, name in _AGES:
        if seconds >= least:
            return f"{seconds // unit:,} {name} ago"
    return "just now" if seconds < 60 else "1 minute ago"


def day(time_nanos: int) -> str:
    """Return a Unix time in ns as a date and a time of day, in UTC."""
    return f"{datetime.fromtimestamp(time_nanos // 10**9, UTC):%Y-%m-%d %H:%M} UTC"


def cut(name: str, longest: int = MAX_NAME) -> str:
    """Return a name, with an ellipsis in place of its middle if it has more than `longest` characters."""
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def short(name: str) -> str:
    """Return a function's name without the path of its package: `ssa.Compile`."""
    end = min((at for at in map(name.find, "([{<") if at >= 0), default=len(name))
    return name[name.rfind("/", 0, end) + 1 :]


def short_line(name: str) -> str:
    """Return the name of a line without the paths in it: `ssa.Compile compile.go:30`."""
    function = function_in(name)
    place = name[len(function) :].rpartition("/")[2].strip()
    return f"{short(function)} {place}".rstrip()


def _scaled(value: int, units: tuple[tuple[int, str], ...]) -> str:
    for unit, name in units:
        if abs(value) >= unit:
            number = value / unit
            digits = 0 if abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2
            return f"{number:,.{digits}f} {name}"
    return ""
