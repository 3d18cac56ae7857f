"""Label selectors as Grafana writes them, `{region="eu",pod=~"a.*"}`: parsed, and matched in bounded time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pgo_collector.errors import ParameterInvalid
from pgo_collector.model.name_patterns import compiled_pattern
from pgo_collector.model.series import SERVICE_NAME

# Pyroscope's own name of the label, beside `service_name`.
OTHER_SERVICE_NAME = "__service_name__"
Operator = Literal["=", "!=", "=~", "!~"]

_LONGEST_SELECTOR = 8000
_MOST_MATCHERS = 32
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|"(?P<quoted>(?:[^"\\]|\\.)*)")
    \s*(?P<operator>=~|!~|!=|=)\s*
    (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|`(?P<raw>[^`]*)`)\s*""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """A condition on a label. A label that a series doesn't have has the value ""."""

    name: str
    operator: Operator
    value: str

    def matches(self, value: str) -> bool:
        """Return whether a label with this value matches. An expression matches the whole value."""
        if self.operator in {"=", "!="}:
            return (value == self.value) == (self.operator == "=")
        return (compiled_pattern(self.value).fullmatch(value) is not None) == (self.operator == "=~")


def parse_selector(text: str) -> tuple[LabelMatcher, ...]:
    """Return the matchers of a selector; none for `{}` or an empty text. Raises ParameterInvalid."""
    if len(text) > _LONGEST_SELECTOR:
        raise ParameterInvalid(f"the label selector is longer than {_LONGEST_SELECTOR:,} characters")
    inside = text.strip()
    if not inside:
        return ()
    if not (inside.startswith("{") and inside.endswith("}") and len(inside) > 1):
        raise _malformed(text)
    matchers: list[LabelMatcher] = []
    at, end = 1, len(inside) - 1
    while inside[at:end].strip():
        match = _TOKEN.match(inside, at, end)
        if match is None:
            raise _malformed(inside[at:])
        matchers.append(_matcher(match))
        at = match.end()
        if at < end:
            if inside[at] != ",":
                raise _malformed(inside[at:])
            at += 1
    return tuple(matchers)


def parse_selectors(texts: Sequence[str]) -> list[tuple[LabelMatcher, ...]]:
    """Return the matchers of several selectors, of which a series has to match one.

    None at all means one that matches all. Raises ParameterInvalid.
    """
    if len(texts) > _MOST_MATCHERS:
        raise ParameterInvalid(f"{len(texts)} selectors; the limit is {_MOST_MATCHERS}")
    parsed = [parse_selector(text) for text in texts] or [()]
    check_count(matcher for matchers in parsed for matcher in matchers)
    return parsed


def check_count(matchers: Iterable[LabelMatcher]) -> None:
    """Raise ParameterInvalid if there are too many matchers."""
    count = sum(1 for _ in matchers)
    if count > _MOST_MATCHERS:
        raise ParameterInvalid(f"{count} label matchers; the limit is {_MOST_MATCHERS}")


def _matcher(match: re.Match[str]) -> LabelMatcher:
    quoted, raw = match["quoted"], match["raw"]
    name = match["name"] if quoted is None else _unescaped(quoted)
    escaped = match["double"] if match["double"] is not None else match["single"]
    value = raw if raw is not None else _unescaped(escaped or "")
    operator: Any = match["operator"]
    matcher = LabelMatcher(SERVICE_NAME if name == OTHER_SERVICE_NAME else name, operator, value)
    if operator in {"=~", "!~"}:
        matcher.matches("")  # refuses an expression that can't be compiled
    return matcher


def _unescaped(text: str) -> str:
    """Return the text of a quoted string of PromQL. Raises ParameterInvalid."""

    def plain(match: re.Match[str]) -> str:
        number = match[1] or match[2] or match[3]
        if number is None:
            return _ESCAPED.get(match[4], match[4])
        code = int(number, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ParameterInvalid(f"label selector: there is no character \\{match[0][1:]}")
        return chr(code)

    return _ESCAPE.sub(plain, text)


def _malformed(rest: str) -> ParameterInvalid:
    return ParameterInvalid(
        f'label selector: {rest[:50]!r} can\'t be read; write {{name="value"}}, with =, !=, =~ or !~'
    )
