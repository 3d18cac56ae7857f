r"""Rules for functions as metrics: which functions of which profiles, and what their metrics are called.

A file of rules is TOML, with a table for each:

    [[rule]]
    name = "json_marshal"                    # of the metrics: pgo_function_json_marshal_seconds_total, …
    function = '^encoding/json\.Marshal$'    # or package = '^encoding/json$'
    service = "api"                          # or names and patterns, as a key's; all services without it
    type = "cpu"                             # this one without it
    labels = "region=eu,version!=1.4"        # as in requests
    by = "version"                           # a label of profiles: a series for each of its values
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from pgo_collector.errors import FunctionRulesInvalid, KeyMalformed, ParameterInvalid
from pgo_collector.model.name_patterns import compiled_pattern
from pgo_collector.model.profile_types import (
    BRANCHES,
    COUNTED_SINCE_START,
    CPU,
    MEMORY_DELTA,
    TYPES,
)
from pgo_collector.model.selection import Matcher
from pgo_collector.model.series import EVERY_SCOPE, Scope, Series

# The names of metrics begin so, which no other metric of the collector does.
PREFIX = "pgo_function_"
# A mask has a bit for each rule, and a scrape up to 65 series of four metrics for each.
MOST_RULES = 32
LARGEST_FILE = 64 << 10
_LONGEST = 100
# The types whose profiles are amounts of time.
TIMED_TYPES = tuple(each for each in TYPES if each not in COUNTED_SINCE_START | {MEMORY_DELTA, BRANCHES})

_KEYS = ("name", "function", "package", "service", "type", "labels", "by")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)
# Labels that Prometheus or the metrics themselves have.
_TAKEN = frozenset({"instance", "job", "service"})
_BEGINNING = re.compile(rb"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)


class FunctionPattern(NamedTuple):
    """A regular expression that is searched in the names of functions or of packages."""

    of: Literal["function", "package"]
    text: str


class MetricNames(NamedTuple):
    """The names of a rule's metrics: seconds of stacks, of their leaves, and of all stacks, and the share."""

    inside: str
    own: str
    profiled: str
    share: str


class FunctionRule(NamedTuple):
    """A rule; `label` is the key of the profiles' label that tells its series apart, "" for none."""

    name: str
    pattern: FunctionPattern
    services: Scope
    type: str
    matchers: tuple[Matcher, ...]
    label: str

    @property
    def metrics(self) -> MetricNames:
        """Return the names of its metrics."""
        begin = f"{PREFIX}{self.name}"
        return MetricNames(
            f"{begin}_seconds_total",
            f"{begin}_self_seconds_total",
            f"{begin}_profiled_seconds_total",
            f"{begin}_share",
        )

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the names of its metrics' labels. A profile's `instance` is `profiled_instance`."""
        if not self.label:
            return ("service",)
        name = _NOT_IN_LABELS.sub("_", self.label)
        is_free = name not in _TAKEN and _NAME.fullmatch(name) and not name.startswith("__")
        return "service", name if is_free else f"profiled_{name}"

    def selects(self, series: Series) -> bool:
        """Return whether it is about the profiles of a series."""
        labels = dict(series.labels)
        return (
            series.type == self.type
            and self.services.includes(series.service)
            and all(matcher.includes(labels) for matcher in self.matchers)
        )


FunctionRules = tuple[FunctionRule, ...]


def parse_function_rules(content: bytes) -> FunctionRules:
    """Return the rules in a file. Raises FunctionRulesInvalid, which names the line."""
    if len(content) > LARGEST_FILE:
        raise FunctionRulesInvalid(f"it has {len(content):,} bytes; the limit is {LARGEST_FILE:,}")
    try:
        given = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise FunctionRulesInvalid(f"it isn't TOML: {error}") from None
    tables = given.pop("rule", [])
    if given or not isinstance(tables, list):
        unknown = next(iter(given), "rule")
        raise FunctionRulesInvalid(f"{unknown[:50]!r} isn't a rule: begin each with [[rule]]")
    if len(tables) > MOST_RULES:
        raise FunctionRulesInvalid(
            f"{_place(content, MOST_RULES)}: {len(tables)} rules; the limit is {MOST_RULES}"
        )
    rules: list[FunctionRule] = []
    taken: dict[str, str] = {}
    for number, table in enumerate(tables):
        place = _place(content, number)
        try:
            rule = _rule(table)
        except FunctionRulesInvalid as error:
            raise FunctionRulesInvalid(f"{place}: {error}") from None
        for name in rule.metrics:
            if name in taken:
                raise FunctionRulesInvalid(f"{place}: the rule at {taken[name]} has the metric {name}, too")
            taken[name] = place
        rules.append(rule)
    return tuple(rules)


def _place(content: bytes, number: int) -> str:
    """Return where a rule begins, for a message: its line, or its number if it is no table of its own."""
    starts = [found.start() for found in _BEGINNING.finditer(content)]
    if number >= len(starts):
        return f"rule {number + 1}"
    before = content.count(b"\n", 0, starts[number])
    return f"line {before + 1}"


def _rule(table: object) -> FunctionRule:
    """Return the rule of a table. Raises FunctionRulesInvalid."""
    if not isinstance(table, dict):
        raise FunctionRulesInvalid("a rule is a table, with name and function or package")
    texts = dict(_texts(table))
    name, type_ = texts.get("name", ""), texts.get("type", CPU)
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise FunctionRulesInvalid(
            f"name={name[:50]!r}: give a name of letters, digits and _, of up to {_LONGEST} characters"
        )
    if type_ not in TIMED_TYPES:
        raise FunctionRulesInvalid(
            f"type={type_[:50]!r}: its profiles aren't amounts of time; give one of {', '.join(TIMED_TYPES)}"
        )
    try:
        services = Scope.parse(texts["service"]) if "service" in texts else EVERY_SCOPE
    except KeyMalformed:
        raise FunctionRulesInvalid(
            f"service={texts['service'][:50]!r}: give names of services, or patterns with *, with commas"
        ) from None
    try:
        matchers = tuple(map(Matcher.parse, filter(None, texts.get("labels", "").split(","))))
        pattern = _pattern(texts)
    except ParameterInvalid as error:
        raise FunctionRulesInvalid(str(error)) from None
    return FunctionRule(name, pattern, services, type_, matchers, texts.get("by", ""))


def _texts(table: Mapping[object, object]) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a rule's table. Raises FunctionRulesInvalid."""
    for key, value in table.items():
        if key not in _KEYS:
            raise FunctionRulesInvalid(f"a rule has no {str(key)[:50]!r}; it has {', '.join(_KEYS)}")
        if not isinstance(value, str) or not value:
            raise FunctionRulesInvalid(f"{key} has to be a text with a character or more")
        yield str(key), value


def _pattern(texts: Mapping[str, str]) -> FunctionPattern:
    """Return the pattern of a rule. Raises FunctionRulesInvalid, and ParameterInvalid if it can't be used."""
    function, package = texts.get("function"), texts.get("package")
    if (function is None) == (package is None):
        raise FunctionRulesInvalid("give function or package, a regular expression, and not both")
    compiled_pattern(function or package or "")
    return FunctionPattern("function", function) if function else FunctionPattern("package", package or "")
