"""Where profiles go, and as what: the submit route with its key, and the bodies and parameters sent to it."""

from __future__ import annotations

import gzip
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx

SUBMIT_PATH = "/v1/submit"
GZIP_MAGIC = b"\x1f\x8b"


Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Upload:
    """A profile as it is sent: a gzipped body, and the query parameters that say what it is."""

    body: bytes
    query: Query = ()


def upload_of(profile: bytes, query: Query) -> Upload:
    """A pprof profile, gzipped unless it is already."""
    return Upload(profile if profile.startswith(GZIP_MAGIC) else gzip.compress(profile, mtime=0), query)


def query_of(service: str | None, labels: Mapping[str, str]) -> Query:
    """The parameters that say whose profiles these are. Raises ValueError for a label without a name."""
    return tuple(_query_of(service, labels))


class Endpoint:
    """The submit route at `url`, which may also be the collector's base; `service` and `labels` go with all.

    Raises ValueError for what can't be sent: a URL that isn't one of HTTP, a key that no header can carry, a
    label without a name.
    """

    def __init__(self, url: str, key: str, service: str | None, labels: Mapping[str, str]) -> None:
        self.url = _submit_url(url)
        self.auth = Bearer(key)
        self._query = query_of(service, labels)

    def upload(self, profile: bytes, type_: str | None) -> Upload:
        """A pprof profile, gzipped unless it is already; without a `type_` none is said."""
        return upload_of(profile, self._query + ((("type", type_),) if type_ is not None else ()))

    def request(self, upload: Upload) -> httpx.Request:
        """What is sent, but for the key, which the client puts on it."""
        url = self.url.copy_merge_params(upload.query) if upload.query else self.url
        return httpx.Request(
            "POST", url, content=upload.body, headers={"Content-Type": "application/octet-stream"}
        )


class Bearer(httpx.Auth):
    """Puts the key on each request; as httpx's Auth it comes before a name and password in the URL."""

    def __init__(self, key: str) -> None:
        key = key.strip()
        # Said here, without the key: the HTTP library's own complaint would quote it.
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("the key must be one word of printable ASCII")
        self._header = f"Bearer {key}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """See httpx."""
        request.headers["Authorization"] = self._header
        yield request


def _submit_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"not a URL ({error}): {url!r}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"not an http or https URL: {url!r}")
    path = parsed.path.rstrip("/")
    return parsed.copy_with(path=path if path.endswith(SUBMIT_PATH) else path + SUBMIT_PATH)


def _query_of(service: str | None, labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if service is not None:
        yield "service", service
    if "" in labels:
        raise ValueError("a label has no name")
    if labels:
        # Quoted by itself, since a comma or an equals sign in a part is none of the list's.
        parts = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in labels.items())
        yield "labels", ",".join(parts)
