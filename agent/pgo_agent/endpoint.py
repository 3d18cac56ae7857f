"""Build the requests that submit profiles: URL, key, query parameters and gzipped body."""

from __future__ import annotations

import gzip
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import httpx

from pgo_agent.trace import Report, Step

SUBMIT_PATH = "/v1/submit"
SYMBOLS_PATH = "/v1/symbols"
BINARIES_PATH = "/v1/binaries"
GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20


Query = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Upload:
    """A profile ready to send: a gzipped body, and the query parameters `service`, `labels` and `type`.

    Symbols of a program are a profile, too, which goes to another route: `path` is where, below the
    collector's base URL. A program is sent as it is in a `file`, without a body; GET sends nothing, and asks
    whether the collector has one. `steps` are what the agent did with a profile so far, if its way is traced.
    """

    body: bytes
    query: Query = ()
    steps: tuple[Step, ...] = field(default=(), compare=False)
    path: str = SUBMIT_PATH
    file: Path | None = None
    method: str = "POST"


def make_upload(profile: bytes, query: Query) -> Upload:
    """Return an upload of a pprof profile, which is gzipped first if it isn't already."""
    return Upload(profile if profile.startswith(GZIP_MAGIC) else gzip.compress(profile, mtime=0), query)


def series_query(service: str | None, labels: Mapping[str, str]) -> Query:
    """Return the query parameters `service` and `labels`. Raises ValueError for a label without a name."""
    if "" in labels:
        raise ValueError("a label has no name")
    query = [] if service is None else [("service", service)]
    if labels:
        # Names and values are quoted one by one, so that a comma or an equals sign in them splits nothing.
        parts = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in labels.items())
        query.append(("labels", ",".join(parts)))
    return tuple(query)


class Endpoint:
    """The submit route of a collector, and the service and labels that go with each profile.

    `url` is the collector's base URL or the URL of its submit route. Raises ValueError if `url` isn't an
    http or https URL, the key doesn't fit into a header, or a label has no name.
    """

    def __init__(self, url: str, key: str, service: str | None, labels: Mapping[str, str]) -> None:
        self.url = _submit_url(url)
        self.auth = Bearer(key)
        self._query = series_query(service, labels)
        self._service = series_query(service, {})

    def upload(self, profile: bytes, type_: str | None) -> Upload:
        """Return an upload of a pprof profile; without `type_` the query has no type."""
        return make_upload(profile, self._query + ((("type", type_),) if type_ is not None else ()))

    def symbols(self, symbols: bytes) -> Upload:
        """Return an upload of a program's symbols."""
        return replace(make_upload(symbols, self._service), path=SYMBOLS_PATH)

    def binary(self, file: Path) -> Upload:
        """Return an upload of a program."""
        return Upload(b"", self._service, path=BINARIES_PATH, file=file)

    def binary_of(self, build_id: str) -> Upload:
        """Return the question whether a program of this build is stored."""
        return Upload(b"", self._service, path=f"{BINARIES_PATH}/{build_id}", method="GET")

    def report(self, report: Report, timeout: float) -> httpx.Request:
        """Return the POST request that sends a report; each step of it may take `timeout` seconds."""
        path = f"{self.url.path.removesuffix(SUBMIT_PATH)}/v1/traces/{report.trace_id}/steps"
        headers = {**report.headers, "Content-Length": "0"}
        return httpx.Request(
            "POST",
            self.url.copy_with(path=path),
            headers=headers,
            extensions={"timeout": httpx.Timeout(timeout).as_dict()},
        )

    def request(self, upload: Upload) -> httpx.Request:
        """Return the request for an upload, without the key, which the client adds. Raises OSError."""
        url = self.url.copy_with(path=self.url.path.removesuffix(SUBMIT_PATH) + upload.path)
        if upload.query:
            url = url.copy_merge_params(upload.query)
        headers = {"Content-Type": "application/octet-stream"}
        if upload.file is None:
            return httpx.Request(upload.method, url, content=upload.body, headers=headers)
        headers["Content-Length"] = str(upload.file.stat().st_size)
        return httpx.Request("POST", url, content=_FileContent(upload.file), headers=headers)


class _FileContent:
    """The content of a file, read again for each attempt."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        with self._file.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


class Bearer(httpx.Auth):
    """Send a key in the Authorization header. As httpx's Auth it overrides a user and password in the URL."""

    def __init__(self, key: str) -> None:
        key = key.strip()
        # Checked here, without quoting the key: the HTTP library's own error would quote it.
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("the key must be one word of printable ASCII")
        self._header = f"Bearer {key}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add the header to a request, as httpx.Auth documents."""
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
