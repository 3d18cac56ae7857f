"""Source links: the URL of a line of source, by rules that map modules to repositories.

Rules are separated by blanks; the first one that fits a path is taken. Each is `MODULE=URL`, for example

    example.com/shop=https://git.example/shop/blob/{version}/{path}#L{line}

MODULE is how a module's paths begin: an import path, or a folder of the machine that compiled; `*` stands for
one element of a path. In the URL stand `{module}`, the text that MODULE fits, `{version}`,
`{path}`, the rest of the path, and `{line}`. The version is in the path of a Go module that is a dependency,
`example.com/shop@v1.4.0/cart/cart.go`, wherever in the path that is; a pseudo-version stands for its commit.
Other paths have the version of the service. Nothing here opens a URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

from pprof_merge.analysis import Place

_FIELDS = ("module", "version", "path", "line")
_FIELD = re.compile(r"\{([^{}]*)\}")
_MAX_RULES = 1000
# Go writes an upper-case letter in the path of a module as "!" and the lower-case letter.
_ESCAPED = re.compile(r"!([a-z])")
_PSEUDO = re.compile(r".*[.-]\d{14}-([0-9a-f]{12})$")
_INCOMPATIBLE = "+incompatible"
# Longer paths get no link: a page has up to a thousand.
_MAX_PATH = 1000


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule: the paths that it fits, as an expression, and the URL with the names of fields in braces."""

    paths: re.Pattern[str]
    url: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a rule. Raises ValueError."""
        module, equals, url = text.partition("=")
        shown = f"{text[:80]!r}"
        if not equals or not module.strip("/"):
            raise ValueError(f"{shown} is not a rule; write MODULE=URL")
        try:
            parts = urlsplit(url)
            is_plain = parts.scheme in {"http", "https"} and parts.hostname and not parts.username
        except ValueError:
            parts, is_plain = None, False
        if parts is None or not is_plain or "{" in parts.netloc:
            raise ValueError(f"{shown}: the URL must begin with https:// or http:// and a host's name")
        if not url.isascii() or not url.isprintable() or re.search("[\"'<>\\\\^`|]", url):
            raise ValueError(f"{shown}: percent-encode what isn't allowed in a URL")
        fields = _FIELD.findall(url)
        if {*fields} - {*_FIELDS} or re.search("[{}]", _FIELD.sub("", url)):
            raise ValueError(f"{shown}: the fields of a URL are {{{'}, {'.join(_FIELDS)}}}")
        if "path" not in fields:
            raise ValueError(f"{shown}: the URL needs {{path}}")
        elements = module.rstrip("/").split("/")
        if any("*" in element and element != "*" for element in elements):
            raise ValueError(f"{shown}: * stands for a whole element of a path, as in example.com/*")
        # An element never has a slash, so matching takes no longer than the path and the rule are long.
        begin = "/".join("[^/@]+" if element == "*" else re.escape(element) for element in elements)
        paths = rf"(?:(?:.*/)?(?P<module>{begin})@(?P<version>[^/@]+)|(?P<folder>{begin}))/(?P<path>.+)"
        return cls(re.compile(paths, re.DOTALL), url)


class SourceLinks:
    """The rules of one setting."""

    def __init__(self, text: str) -> None:
        """Read the rules in a text; without any, no line has a URL. Raises ValueError."""
        self._rules = [_Rule.parse(rule) for rule in text.split()]
        if len(self._rules) > _MAX_RULES:
            raise ValueError(f"there are {len(self._rules):,} rules, and at most {_MAX_RULES:,} are allowed")

    @property
    def any(self) -> bool:
        """Return whether there are any rules."""
        return bool(self._rules)

    def url(self, place: Place, version: str) -> str | None:
        """Return the URL of a line; None if no rule fits, or one that needs a version has none.

        `version` is that of the service.
        """
        file = _ESCAPED.sub(lambda match: match[1].upper(), place.file)
        if len(file) > _MAX_PATH or ".." in file.split("/") or ".." in version.split("/"):
            return None
        found = ((rule, match) for rule in self._rules if (match := rule.paths.fullmatch(file)))
        rule, match = next(found, (None, None))
        if rule is None or match is None:
            return None
        of_path = match["version"]
        fields = {
            "module": match["module"] or match["folder"],
            "version": _revision(of_path) if of_path else version,
            "path": match["path"],
            "line": str(max(place.line, 1)),
        }
        if not fields["version"] and "{version}" in rule.url:
            return None
        return _FIELD.sub(lambda match: quote(fields[match[1]].strip("/"), safe="/"), rule.url)


def _revision(version: str) -> str:
    """Return the tag of a module's version, or the commit of a pseudo-version."""
    version = version.removesuffix(_INCOMPATIBLE)
    pseudo = _PSEUDO.fullmatch(version)
    return pseudo[1] if pseudo else version
