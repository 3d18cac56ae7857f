"""Describe a scrape target: a process that answers at /debug/pprof, and the profiles to get from it.

autopgo's marks ask for a program's profiles: labels and annotations of pods, tags of services. Which agent
scrapes a target, and when, follows from the target's name alone, so agents need not know of each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv6Address
from pathlib import Path
from typing import Self

import httpx

from pgo_agent.errors import TargetInvalid

BASE_PATH = "/debug/pprof"
_SCHEMES = frozenset({"http", "https"})
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# The names in net/http/pprof's URLs, where they differ from the type.
_URL_NAMES = {"cpu": "profile"}
TYPES = ("cpu", "heap", "allocs", "block", "mutex", "goroutine", "threadcreate")
# Go counts these from the start of the process. With ?seconds=N it gives only what N seconds added, so that
# the profiles of two rounds can be summed. The other types are a state at one moment, and stay as they are.
_WINDOWED = frozenset({"cpu", "allocs", "block", "mutex"})
SCRAPE = "autopgo.scrape"
APP, PORT, PATH, SCHEME = (f"{SCRAPE}.{name}" for name in ("app", "port", "path", "scheme"))


@dataclass(frozen=True, slots=True)
class TargetDefaults:
    """The settings of a target that has none of its own: profile types, and their length in seconds."""

    types: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that a target offers: its `type`, and the URL to GET."""

    type: str
    url: str


@dataclass(frozen=True, slots=True)
class Target:
    """A process to scrape, with a unique and stable `name`.

    `service` and `labels` go to the collector with its profiles. `seconds` is how long its longest profile
    takes. `token_file` holds the bearer token for it, if it needs one, and `ca_file` the CA certificates that
    its own is signed with, if they aren't among the system's.
    """

    name: str
    service: str
    labels: tuple[tuple[str, str], ...]
    profiles: tuple[Profile, ...]
    seconds: int
    token_file: Path | None = None
    ca_file: Path | None = None


def checked_scheme(name: str, scheme: str) -> str:
    """Return the scheme of a URL; a longer text could name another host. Raises TargetInvalid."""
    if scheme not in _SCHEMES:
        raise TargetInvalid(name, f"not http or https: {scheme!r}")
    return scheme


def checked_host(name: str, address: str) -> str:
    """Return an address as the host of a URL. Raises TargetInvalid for what is no IP address or host name."""
    if _HOST_NAME.fullmatch(address):
        return address
    try:
        return f"[{IPv6Address(address)}]"
    except ValueError:
        raise TargetInvalid(name, f"not an address: {address[:100]!r}") from None


def checked_port(name: str, text: str) -> int:
    """Return the number of a port. Raises TargetInvalid."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 1 << 16):
        raise TargetInvalid(name, f"not a port: {text!r}")
    return int(text)


def absolute_path(text: str) -> str:
    """Return a path with a leading slash, without which it would become part of the host."""
    return f"/{text.lstrip('/')}"


def profile_at_url(name: str, type_: str, url: str, seconds: int) -> Profile:
    """Return the profile of a type at exactly this URL. Raises TargetInvalid, with the target's name."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise TargetInvalid(name, f"not a URL ({error}): {url!r}") from None
    if parsed.scheme not in _SCHEMES or not parsed.host:
        raise TargetInvalid(name, f"not an http or https URL: {url!r}")
    if type_ in _WINDOWED:
        parsed = parsed.copy_set_param("seconds", seconds)
    return Profile(type_, str(parsed))


def profile_under(name: str, type_: str, base: str, seconds: int) -> Profile:
    """Return the profile of a type under the base URL of net/http/pprof. Raises TargetInvalid."""
    return profile_at_url(name, type_, f"{base.rstrip('/')}/{_URL_NAMES.get(type_, type_)}", seconds)


def marks_of_tags(tags: Iterable[str]) -> dict[str, str]:
    """Return the marks among the tags of a service, such as `autopgo.scrape.app=shop`, by name."""
    return {
        name: value
        for name, equals, value in (tag.partition("=") for tag in tags)
        if equals and (name == SCRAPE or name.startswith(f"{SCRAPE}."))
    }


def marked_profiles(
    name: str, marks: Mapping[str, str], address: str, defaults: TargetDefaults
) -> Iterator[Profile]:
    """Yield the profiles of a program at `address`, a host and a port, by its marks.

    A path is that of the CPU profile, as autopgo takes it; without one, the program has net/http/pprof's.
    Raises TargetInvalid, with the target's name.
    """
    root = f"{checked_scheme(name, marks.get(SCHEME) or 'http')}://{address}"
    if path := marks.get(PATH):
        yield profile_at_url(name, "cpu", root + absolute_path(path), defaults.seconds)
        return
    for type_ in defaults.types:
        yield profile_under(name, type_, root + BASE_PATH, defaults.seconds)


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard number `index` (from 0) of a fleet that is split into `count` shards.

    A target stays in its shard, whichever other targets come and go. `name in shard` tells whether a target
    is in it.
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that text such as "2/5" (the third of five) names. Raises ValueError."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            raise ValueError(f"not INDEX/COUNT, with an index from 0 to COUNT - 1: {text!r}")
        return cls(int(index), int(count))

    def __contains__(self, name: str) -> bool:
        return int(_fraction(name, b"shard") * self.count) == self.index


def next_scrape_time(name: str, every: float, now: float) -> float:
    """Return the first time after `now` (s since 1970) at which a target is to be scraped.

    Rounds begin at multiples of `every` seconds, and each target has its own offset within a round. Because
    all agents use the same clock, a target keeps its times when an agent restarts or another takes over.
    """
    offset = _fraction(name, b"moment") * every
    in_this_round = now // every * every + offset
    return in_this_round if in_this_round > now else in_this_round + every


def _fraction(name: str, purpose: bytes) -> float:
    """Return a number from 0 to 1, spread evenly over names and independent for each purpose."""
    digest = blake2b(name.encode(), digest_size=6, person=purpose).digest()
    return int.from_bytes(digest) / (1 << 48)
