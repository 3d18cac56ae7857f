"""Scopes: which services a key is for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pgo_collector.errors import KeyMalformed
from pgo_collector.store.series import SERVICE_PATTERN

_SERVICE = re.compile(SERVICE_PATTERN)


@dataclass(frozen=True, slots=True)
class Scope:
    """Patterns of the names of services, in which `*` is any text; that of a key that names none is `*`."""

    patterns: tuple[str, ...] = ("*",)

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Patterns with commas between them. Raises KeyMalformed, which doesn't quote the text."""
        patterns = text.split(",")
        if not all(_SERVICE.fullmatch(pattern.replace("*", "a")) for pattern in patterns):
            raise KeyMalformed(
                "service= takes names of services, or patterns with *, and commas between them"
            )
        return cls(tuple(dict.fromkeys(patterns)))

    def __str__(self) -> str:
        return ",".join(self.patterns)

    def includes(self, service: str) -> bool:
        """Whether a pattern matches the name.

        The service may be a pattern too, such as `*` for all of them: its `*` is matched only by another
        `*`, so the answer is yes only if the scope has every service that the pattern has.
        """
        return any(fnmatchcase(service, pattern) for pattern in self.patterns)

    @property
    def only(self) -> str | None:
        """The service, if the scope is the name of one."""
        first, *others = self.patterns
        return None if others or "*" in first else first
