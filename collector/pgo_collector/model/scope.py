"""Scope: the services that a key is for. Statements on the catalog take it: see `catalog.selection_sql`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pgo_collector.errors import KeyMalformed
from pgo_collector.model.selection import EVERY_SERVICE
from pgo_collector.model.series import SERVICE_PATTERN

_SERVICE = re.compile(SERVICE_PATTERN)


@dataclass(frozen=True, slots=True)
class Scope:
    """The services that a key is for: names, or patterns in which `*` matches any text. Default: all."""

    patterns: tuple[str, ...] = (EVERY_SERVICE,)

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Return the scope of comma-separated patterns. Raises KeyMalformed, which doesn't quote the text."""
        patterns = text.split(",")
        if not all(_SERVICE.fullmatch(pattern.replace("*", "a")) for pattern in patterns):
            raise KeyMalformed(
                "service= takes names of services, or patterns with *, with commas between them"
            )
        return cls(tuple(dict.fromkeys(patterns)))

    def __str__(self) -> str:
        return ",".join(self.patterns)

    def includes(self, service: str) -> bool:
        """Return whether a pattern matches the name of a service.

        The service may itself be a pattern, such as `*` for all services. Only a `*` matches a `*`, so this
        returns True only if the scope has every service that the pattern has.
        """
        return any(fnmatchcase(service, pattern) for pattern in self.patterns)

    @property
    def only_service(self) -> str | None:
        """The service if the scope is the name of just one, else None."""
        first, *others = self.patterns
        return None if others or "*" in first else first

    @property
    def is_every(self) -> bool:
        """Return whether it has all services."""
        return EVERY_SERVICE in self.patterns


EVERY_SCOPE = Scope()
