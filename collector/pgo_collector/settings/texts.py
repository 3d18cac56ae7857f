"""Checks of settings whose text has a syntax: addresses, URLs, lists. Each raises ValueError."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

from pgo_collector.model.capture_targets import parse_targets
from pgo_collector.model.debuginfod_servers import parse_servers
from pgo_collector.model.root_path import parse_proxies, parse_root_path
from pgo_collector.model.source_links import SourceLinks

# The value of PGOF_BULK without a cluster.
OWN_WORKERS = "workers"
# A prefix has no empty parts, and none that are dots.
_STORAGE = re.compile(r"(?:s3|gs|az)://[a-z0-9][a-z0-9._-]{1,62}(?:/(?!\.{1,2}(?:/|$))[\w.=-]+)*/?", re.ASCII)
# Blanks and control characters, which no URL has.
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
# The scheme of a Dask scheduler in these settings, and in Dask's own addresses.
_DASK_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of `host:port`; the host of `:port` is empty, that of `[::1]:port` is `::1`.

    Raises ValueError.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("must be host:port, for example 127.0.0.1:8080, :8080 or [::1]:8080")
    if ":" in host and not bracketed:
        raise ValueError("an IPv6 address needs brackets, as in [::1]:8080")
    return host[1:-1] if bracketed else host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine reach a host, which may be an address or a name."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def dask_address(text: str) -> str:
    """Return Dask's address of the scheduler at `dask://host:port`. Raises ValueError."""
    scheme, _, address = text.partition("://")
    if scheme not in _DASK_SCHEMES:
        raise ValueError("must be dask://host:port or dask+tls://host:port")
    split_address(address)
    return f"{_DASK_SCHEMES[scheme]}://{address}"


def _checked(parse: Callable[[str], Any]) -> Callable[[str], str]:
    """Return the check that a text can be parsed; the text stays as it is."""

    def check(text: str) -> str:
        parse(text)
        return text

    return check


def _parse_bulk(text: str) -> None:
    if text != OWN_WORKERS:
        dask_address(text)


def _parse_optional_address(text: str) -> None:
    if text:
        split_address(text)


def _parse_url(text: str) -> None:
    parts = urlsplit(text)
    _ = parts.port  # raises ValueError if there can't be such a port
    if parts.scheme not in {"http", "https"} or not parts.hostname or _BLANK.search(text):
        raise ValueError("must be a URL that begins with http:// or https://")


def _parse_catalog(url: str) -> None:
    if url and not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be empty, or a URL of PostgreSQL: postgresql://user@host/database")


def _parse_storage(url: str) -> None:
    if url and not _STORAGE.fullmatch(url):
        raise ValueError("must be s3://bucket/prefix, gs://bucket/prefix or az://container/prefix")


Address = Annotated[str, _checked(split_address)]
OptionalAddress = Annotated[str, _checked(_parse_optional_address)]
Bulk = Annotated[str, _checked(_parse_bulk)]
CaptureTargets = Annotated[str, _checked(parse_targets)]
CatalogURL = Annotated[str, _checked(_parse_catalog)]
DebuginfodURLs = Annotated[str, _checked(parse_servers)]
RootPath = Annotated[str, parse_root_path]
SourceRules = Annotated[str, _checked(SourceLinks)]
StorageURL = Annotated[str, _checked(_parse_storage)]
TrustedProxies = Annotated[str, _checked(parse_proxies)]
URL = Annotated[str, _checked(_parse_url)]
