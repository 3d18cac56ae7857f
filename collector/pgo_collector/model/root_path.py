"""Root path: the path of a proxy below which this server is reached, and the proxies that may tell it."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network

_LONGEST = 200
# Letters that need no quotes, neither in a URL, nor in HTML, a cookie's path or a shell.
_ROOT_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+", re.ASCII)
# The first parts of this server's own paths: below one of these, nobody could tell whether a proxy has
# already removed its path.
OWN_PARTS = frozenset(
    {
        "api", "debuginfo.v1alpha1.DebuginfoService", "healthz", "info", "ingest", "metrics",
        "parca.debuginfo.v1alpha1.DebuginfoService", "parca.profilestore.v1alpha1.ProfileStoreService",
        "profiling", "push.v1.PusherService", "pyroscope", "querier.v1.QuerierService", "ready", "readyz",
        "settings.v1.SettingsService", "ui", "v1", "v1development",
    }
)  # fmt: skip


def parse_root_path(text: str) -> str:
    """Return a root path without a slash at its end; empty for `/`. Raises ValueError."""
    path = text.removesuffix("/")
    if path and (len(path) > _LONGEST or not _ROOT_PATH.fullmatch(path)):
        raise ValueError(
            f"must be a path such as /pgo, of at most {_LONGEST} letters, digits and ._~-, not {text[:50]!r}"
        )
    if (part := path[1:].partition("/")[0]) in OWN_PARTS:
        raise ValueError(f"this server's own paths begin with /{part}: use a path that doesn't")
    return path


def parse_proxies(text: str) -> tuple[Network, ...]:
    """Return the networks of a comma-separated text; an address is a network of one. Raises ValueError."""
    try:
        return tuple(ip_network(name) for each in text.split(",") if (name := each.strip()))
    except ValueError as error:
        raise ValueError(f"must be addresses and networks, such as 127.0.0.1, 10.0.0.0/8: {error}") from None


def is_in(networks: tuple[Network, ...], host: str) -> bool:
    """Return whether an address is in one of these networks; an IPv4 one may be written as IPv6."""
    try:
        address = ip_address(host)
    except ValueError:  # a client without an address: it comes by gRPC
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return any(address in network for network in networks)
