"""Functions as metrics: seconds of functions in the profiles that this collector has stored, by rules.

A worker measures a profile while it validates it, see `engine.function_seconds`; here it is counted once it
is stored, and only if it wasn't before. So each profile counts once, on the one collector that stored it, and
sums over collectors are right. The sums begin at 0 with the process, as Prometheus expects of counters.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from pgo_collector.engine.function_seconds import FAILURES, FunctionSeconds, Measured
from pgo_collector.errors import FunctionRulesInvalid
from pgo_collector.model.function_rules import FunctionRule, FunctionRules, parse_function_rules
from pgo_collector.model.series import Series
from pgo_collector.reloaded_file import ReloadedFile

# Values of the labels of one rule's metrics; what comes when there are as many counts as OTHER.
_MOST_SERIES = 64
OTHER = "other"
# The time that the share is of, in minutes.
SHARE_MINUTES = 15
# Series of profiles for which the rules that select them are kept.
_MOST_KEPT = 1 << 12
_log = structlog.get_logger()


class _Minute:
    """Seconds of stacks with the functions, and of all stacks, that came in one minute."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inside = self.profiled = 0.0


class Reading(NamedTuple):
    """A series of a rule's metrics: the values of its labels, its seconds, and the share if there is any."""

    labels: tuple[str, ...]
    inside: float
    own: float
    profiled: float
    share: float | None


class _Sums:
    """The sums of one series of a rule."""

    def __init__(self) -> None:
        self.inside = self.own = self.profiled = 0.0
        self._minutes: deque[_Minute] = deque(maxlen=SHARE_MINUTES)

    def add(self, minute: int, inside: float, own: float, profiled: float) -> None:
        """Add the seconds of a profile that came in a minute of the monotonic clock."""
        self.inside += inside
        self.own += own
        self.profiled += profiled
        if not self._minutes or self._minutes[-1].number != minute:
            self._minutes.append(_Minute(minute))
        self._minutes[-1].inside += inside
        self._minutes[-1].profiled += profiled

    def read(self, labels: tuple[str, ...]) -> Reading:
        """Return what the series with these values of its labels shows."""
        since = int(time.monotonic() // 60) - SHARE_MINUTES
        recent = [minute for minute in self._minutes if minute.number > since]
        profiled = sum(minute.profiled for minute in recent)
        share = sum(minute.inside for minute in recent) / profiled if profiled else None
        return Reading(labels, self.inside, self.own, self.profiled, share)


# The sums of a rule by the values of their labels.
_SeriesSums = dict[tuple[str, ...], _Sums]


class RuleSet:
    """The rules of a file with their sums, and their patterns in the same order."""

    def __init__(
        self, rules: FunctionRules = (), before: Mapping[FunctionRule, _SeriesSums] | None = None
    ) -> None:
        """Take rules; those that were there `before` go on with their sums."""
        self.sums = {rule: (before or {}).get(rule, _first_sums(rule)) for rule in rules}
        self.patterns = tuple((rule.pattern.of, rule.pattern.text) for rule in rules)
        # By series of profiles: the indexes of the rules that select it, and the sums that it counts for.
        self._selecting: dict[Series, tuple[int, ...]] = {}
        self._counting: dict[Series, list[tuple[int, _Sums]]] = {}

    def selecting(self, series: Series) -> tuple[int, ...]:
        """Return the indexes of the rules that select a series."""
        found = self._selecting.get(series)
        if found is None:
            if len(self._selecting) >= _MOST_KEPT:
                self._selecting.clear()
            found = tuple(number for number, rule in enumerate(self.sums) if rule.selects(series))
            self._selecting[series] = found
        return found

    def add(self, series: Series, seconds: FunctionSeconds) -> None:
        """Add the seconds of a profile of a series to the sums that it counts for."""
        counting = self._counting.get(series)
        if counting is None:
            if len(self._counting) >= _MOST_KEPT:
                self._counting.clear()
            every = [*self.sums.items()]
            counting = [(number, _sums_of(*every[number], series)) for number in self.selecting(series)]
            self._counting[series] = counting
        minute = int(time.monotonic() // 60)
        for number, sums in counting:
            sums.add(minute, seconds.inside[number], seconds.own[number], seconds.profiled)


def _first_sums(rule: FunctionRule) -> _SeriesSums:
    """Return the series of a rule that are known before a profile comes, so that the first is an increase."""
    names = () if rule.label else [name for name in rule.services.patterns if "*" not in name]
    return {(name,): _Sums() for name in names[:_MOST_SERIES]}


def _sums_of(rule: FunctionRule, by_labels: _SeriesSums, series: Series) -> _Sums:
    """Return the sums of a series of profiles, which are those of OTHER if there are too many already."""
    of_label = (dict(series.labels).get(rule.label, ""),) if rule.label else ()
    labels = series.service, *of_label
    if labels not in by_labels and len(by_labels) >= _MOST_SERIES:
        labels = rule.services.only_service or OTHER, *(OTHER for _ in of_label)
    return by_labels.setdefault(labels, _Sums())


class FunctionMetrics:
    """Counts what was measured, by the rules that are used now; there are none at first.

    `failed` is how many profiles that a rule selects couldn't be measured, by reason. `is_outdated` says that
    the file can't be used as it is. Any thread may call it.
    """

    def __init__(self) -> None:
        self.rules = RuleSet()
        self.failed = Counter(dict.fromkeys(FAILURES, 0))
        self.is_outdated = False
        self._lock = Lock()

    def use(self, rules: FunctionRules) -> None:
        """Use other rules from now on; those that stay the same keep their sums."""
        with self._lock:
            self.rules = RuleSet(rules, self.rules.sums)
            self.is_outdated = False

    def count(self, rules: RuleSet, series: Series, measured: Measured) -> None:
        """Count a profile of a series that was stored, and measured by the patterns of `rules`."""
        with self._lock:
            if isinstance(measured, str):
                self.failed[measured] += bool(rules.selecting(series))
            elif measured is not None:
                rules.add(series, measured)

    def read(self) -> Iterator[tuple[FunctionRule, Sequence[Reading]]]:
        """Yield what the series of each rule show."""
        for rule, by_labels in self.rules.sums.items():
            with self._lock:  # for one rule at a time, since the event loop may wait for it
                readings = [sums.read(labels) for labels, sums in by_labels.items()]
            yield rule, readings


class NoFunctionRules:
    """The background task of a collector without a file of rules."""

    async def run(self) -> None:
        """Do nothing."""


class FunctionRulesFile(ReloadedFile):
    """The file of rules that metrics use. The rules before hold as long as it can't be used."""

    def __init__(self, path: Path, metrics: FunctionMetrics) -> None:
        """Read the file. A server also starts with one that it can't use, since profiles need no metrics."""
        self._metrics = metrics
        try:
            super().__init__(path)
        except OSError as error:
            self.tell_unreadable(error.strerror)
        else:
            self.replace(self.text)

    def replace(self, text: bytes) -> None:
        """Use the rules of the file, if all are sound."""
        try:
            rules = parse_function_rules(text)
        except FunctionRulesInvalid as error:
            self.tell_unreadable(str(error))
        else:
            self._metrics.use(rules)
            _log.info("function rules read", file=str(self.path), count=len(rules))

    def tell_unreadable(self, reason: str | None) -> None:
        """Log why the file can't be used, and keep the rules before."""
        self._metrics.is_outdated = True
        _log.error("function rules not used", file=str(self.path), reason=reason)
