"""Capture targets: where a profile can be taken at once, by rules of a setting that map services to URLs.

Rules are separated by blanks, and each is `SERVICE=URL` or `SERVICE/TYPE=URL`, for example

    checkout=http://10.0.0.5:6060/debug/pprof/profile?seconds=10
    db=post+http://10.0.0.9:3080/profile/cpu#{"profiler":{"Perf":null}}

The URL is asked by GET; with `post+` in front, by POST, and what stands after `#` is the body, in JSON.
Without a type, the profile is of CPU. A service may have several rules, such as one for each instance. Only
an operator writes URLs: a request names one of them by its host and port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from pgo_collector.model.profile_types import CPU, TYPES
from pgo_collector.model.series import SERVICE_PATTERN, Series

_MOST_TARGETS = 1000
_RULE = re.compile(rf"(?P<service>{SERVICE_PATTERN})(?:/(?P<type>[a-z_]+))?=(?P<post>post\+)?(?P<url>.+)")
_INSTANCE = "instance"


@dataclass(frozen=True, slots=True)
class CaptureTarget:
    """A URL that answers with a new profile of a service; `instance` is its host and port.

    `body` is what is sent to it; None to ask by GET.
    """

    service: str
    type: str
    url: str
    body: str | None
    instance: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the target of a rule. Raises ValueError."""
        shown = f"{text[:80]!r}"
        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f"{shown} is not a rule; write SERVICE=URL or SERVICE/TYPE=URL")
        type_ = match["type"] or CPU
        if type_ not in TYPES:
            raise ValueError(f"{shown}: there is no type {type_!r}; there are {', '.join(TYPES)}")
        try:
            parts = urlsplit(match["url"])
            is_plain = parts.scheme in {"http", "https"} and parts.hostname and not parts.username
            port = parts.port
        except ValueError:
            is_plain, port = False, None
        if not is_plain or not match["url"].isascii() or not match["url"].isprintable():
            raise ValueError(f"{shown}: the URL must begin with http:// or https:// and a host's name")
        instance = f"{parts.hostname}:{port or (443 if parts.scheme == 'https' else 80)}"
        url, _, body = match["url"].partition("#")
        return cls(match["service"], type_, url, body if match["post"] else None, instance)

    @property
    def series(self) -> Series:
        """Return the series that its profiles are stored in."""
        return Series(self.service, self.type, ((_INSTANCE, self.instance),))


def parse_targets(text: str) -> tuple[CaptureTarget, ...]:
    """Return the targets of all rules in a text. Raises ValueError."""
    targets = tuple(map(CaptureTarget.parse, text.split()))
    if len(targets) > _MOST_TARGETS:
        raise ValueError(f"there are {len(targets):,} rules, and at most {_MOST_TARGETS:,} are allowed")
    if len({target.series for target in targets}) < len(targets):
        raise ValueError("two rules have the same service, type, host and port")
    return targets
