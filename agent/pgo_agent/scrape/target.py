"""What is scraped: a process that answers below /debug/pprof, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx

from pgo_agent.errors import TargetInvalid

BASE_PATH = "/debug/pprof"
# What net/http/pprof calls them.
_NAMES = {"cpu": "profile"}
TYPES = ("cpu", "heap", "allocs", "block", "mutex", "goroutine", "threadcreate")
# Go counts these since the process began. Asked for a number of seconds it gives what was added in those, so
# that the profiles of two rounds may be summed; of what is in use at a moment, there is nothing to subtract.
_WINDOWED = frozenset({"cpu", "allocs", "block", "mutex"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a target that doesn't say: `types`, and the length of what takes time (s)."""

    types: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that a target gives: the URL to GET for one of that `type`."""

    type: str
    url: str


@dataclass(frozen=True, slots=True)
class Target:
    """A process, by a `name` that it keeps and that no other has.

    `service` and `labels` are what the collector is told of its profiles; `seconds` is the longest that one
    takes. `token_file` has the bearer token that it asks for, `ca_file` the certificates that its own is
    signed with, where those aren't the system's.
    """

    name: str
    service: str
    labels: tuple[tuple[str, str], ...]
    profiles: tuple[Profile, ...]
    seconds: int
    token_file: Path | None = None
    ca_file: Path | None = None


def profile_at(name: str, type_: str, url: str, seconds: int) -> Profile:
    """The profile of a type at the URL of its route. Raises TargetInvalid, with the target's name."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise TargetInvalid(name, f"not a URL ({error}): {url!r}") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise TargetInvalid(name, f"not an http or https URL: {url!r}")
    if type_ in _WINDOWED:
        parsed = parsed.copy_set_param("seconds", seconds)
    return Profile(type_, str(parsed))


def profile_below(name: str, type_: str, base: str, seconds: int) -> Profile:
    """As `profile_at`, below the URL that net/http/pprof answers at."""
    return profile_at(name, type_, f"{base.rstrip('/')}/{_NAMES.get(type_, type_)}", seconds)
