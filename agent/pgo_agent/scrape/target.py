"""Describe a scrape target: a process that answers at /debug/pprof, and the profiles to get from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

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
