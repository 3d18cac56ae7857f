"""The settings, in one table: name, default and help. They are read once, from the environment and a file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_address
from math import inf
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from pprof_merge import Budget, Limits
from pprof_merge.binary import BinaryLimits
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, ValidationError

from pgo_collector.errors import SettingsInvalid
from pgo_collector.model.capture_targets import parse_targets
from pgo_collector.model.debuginfod_servers import DebuginfodServer, parse_servers
from pgo_collector.model.root_path import parse_proxies, parse_root_path
from pgo_collector.model.series import SERVICE_PATTERN
from pgo_collector.model.source_links import SourceLinks
from pgo_collector.resources import memory_bytes
from pgo_collector.traces.spans import PARTS

PREFIX = "PGOF_"
_FILE = f"{PREFIX}SETTINGS_FILE"
# What Kubernetes tells each container of its namespace's services: names, and beginnings of values.
_OF_KUBERNETES = re.compile(r"\w+_SERVICE_(?:HOST|PORT(?:_\w+)?)|\w+_PORT_\d+_[A-Z]+_(?:PROTO|PORT|ADDR)")
_LINKS = ("tcp://", "udp://", "sctp://")
# A prefix has no empty parts, and none that are dots.
_STORAGE = re.compile(r"(?:s3|gs|az)://[a-z0-9][a-z0-9._-]{1,62}(?:/(?!\.{1,2}(?:/|$))[\w.=-]+)*/?", re.ASCII)
# The catalog and zlib take no number of more than 63 bits.
_MOST = 1 << 62
# The memory of the server and two workers with nothing stored, in MiB: see docs/capacity.md.
_IDLE_MEGABYTES = 160
_SECRETS, SUBMIT_KEYS, MERGE_KEYS = Path("/secret"), "submit_keys", "merge_keys"
# The value of PGOF_BULK without a cluster.
_OWN_WORKERS = "workers"


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


def _check_address(address: str) -> str:
    split_address(address)
    return address


def _check_optional_address(address: str) -> str:
    return address and _check_address(address)


# The scheme of a Dask scheduler in these settings, and in Dask's own addresses.
_DASK_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}


def dask_address(text: str) -> str:
    """Return Dask's address of the scheduler at `dask://host:port`. Raises ValueError."""
    scheme, _, address = text.partition("://")
    if scheme not in _DASK_SCHEMES:
        raise ValueError("must be dask://host:port or dask+tls://host:port")
    return f"{_DASK_SCHEMES[scheme]}://{_check_address(address)}"


def _check_bulk(text: str) -> str:
    if text != _OWN_WORKERS:
        dask_address(text)
    return text


def _check_catalog(url: str) -> str:
    if url and not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("must be empty, or a URL of PostgreSQL: postgresql://user@host/database")
    return url


def parts_of(text: str) -> frozenset[str]:
    """Return the parts that a comma-separated text names; all for `*`. Raises ValueError."""
    names = frozenset(filter(None, (name.strip() for name in text.split(","))))
    if "*" in names:
        return frozenset(PARTS)
    if unknown := sorted(names - {*PARTS}):
        raise ValueError(f"{', '.join(unknown)}: no such part; there are {', '.join(PARTS)}")
    return names


def _check_parts(text: str) -> str:
    parts_of(text)
    return text


def _check_storage(url: str) -> str:
    if url and not _STORAGE.fullmatch(url):
        raise ValueError("must be s3://bucket/prefix, gs://bucket/prefix or az://container/prefix")
    return url


def _check_source_links(text: str) -> str:
    SourceLinks(text)
    return text


def _check_targets(text: str) -> str:
    parse_targets(text)
    return text


def _check_debuginfod(text: str) -> str:
    parse_servers(text)
    return text


def _check_proxies(text: str) -> str:
    parse_proxies(text)
    return text


def _own_keys(directory: Path) -> dict[str, Path]:
    """Return the keys files in a data folder, by the names of their settings."""
    return {
        "submit_auth_keys_file": directory / SUBMIT_KEYS,
        "merge_auth_keys_file": directory / MERGE_KEYS,
    }


def default_workers() -> int:
    """Return the number of cores, at least 2, so that a merge doesn't hold up submits."""
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def default_rows_megabytes() -> int:
    """Return a quarter of the memory, at most 1024, in MiB."""
    return max(1, min(1024, (memory_bytes() >> 20) // 4))


def default_worker_megabytes() -> int:
    """Return a worker's share of the memory for tasks, from 64 to 4096, in MiB.

    The workers share four fifths of the memory, less what idle processes take and the default of rows.
    """
    total = (memory_bytes() >> 20) * 4 // 5
    left = total - _IDLE_MEGABYTES - default_rows_megabytes()
    return min(max(left // default_workers(), 64), 4096)


def default_output_bytes() -> int:
    """Return 256 MiB, or a third of a worker's memory for tasks if that is less, in bytes."""
    return min(256 << 20, (default_worker_megabytes() << 20) // 3)


class Settings(BaseModel):
    """The table. A setting's environment variable is `PGOF_` and its name in upper case."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    bind_address: Annotated[str, AfterValidator(_check_address)] = Field(
        default="127.0.0.1:8080",
        description=(
            "The address to listen on: host:port, or :port for every interface. Port 0 picks a free one."
        ),
    )
    settings_file: Path | None = Field(
        default=None,
        description=(
            "A file of settings, in TOML: their names in lower case and without PGOF_, such as"
            " `keep_days = 90`. Variables of the environment count for more. It is read at the start."
        ),
    )
    directory: Path = Field(
        default=Path("./profiles"),
        description="The data folder. It is created if missing. Only one server at a time can use it.",
    )
    storage: Annotated[str, AfterValidator(_check_storage)] = Field(
        default="",
        description=(
            "Where the blobs, releases, uploaded programs and start lines are: s3://bucket/prefix,"
            " gs://bucket/prefix or az://container/prefix. By default they are in the data folder. Only"
            " collectors with the same PGOF_CATALOG can use a prefix."
        ),
    )
    storage_seconds: float = Field(
        default=10,
        ge=0.1,
        le=300,
        description=(
            "The longest that a request to the object store of PGOF_STORAGE may take, in seconds. It is tried"
            " up to three times meanwhile; then what needs it is answered with 503."
        ),
    )
    storage_requests: int = Field(
        default=16,
        ge=1,
        le=256,
        description=(
            "How many requests to the object store of PGOF_STORAGE each process runs at once. It holds"
            " one blob in memory for each."
        ),
    )
    catalog: Annotated[str, AfterValidator(_check_catalog)] = Field(
        default="",
        repr=False,
        description=(
            "The database of the catalog: empty for SQLite in the data folder, or a URL of PostgreSQL, such"
            " as postgresql://user@host/database. Needs the extra `postgresql` of the package. Several"
            " collectors can use it if their blobs are in the same PGOF_STORAGE; else only one."
        ),
    )
    catalog_connections: int = Field(
        default=8,
        gt=0,
        le=1000,
        description=(
            "How many connections to PostgreSQL may read the catalog at once; one more writes it. Beyond the"
            " number, a request waits for one to be free."
        ),
    )
    catalog_connect_seconds: float = Field(
        default=5,
        ge=1,
        le=3600,
        description=(
            "How long to wait for a connection to PostgreSQL, for a new one or for one to be free, in"
            " seconds. Beyond it, the answer is 503."
        ),
    )
    catalog_statement_seconds: float = Field(
        default=60,
        ge=1,
        le=86_400,
        description=(
            "How long one statement in PostgreSQL may take, in seconds. Beyond it, it is cancelled, and the"
            " answer is 503."
        ),
    )
    submit_auth_keys_file: Path = Field(
        default=_SECRETS / SUBMIT_KEYS,
        description=(
            "The file of keys that may submit, one per line. It is read again when it changes. If no setting"
            " names a keys file, there is no folder /secret, and the addresses to listen on are of this"
            " machine only, `serve` makes keys in the data folder."
        ),
    )
    merge_auth_keys_file: Path = Field(
        default=_SECRETS / MERGE_KEYS,
        description=(
            "The file of keys that may read, merge and combine, one per line. It is read again when"
            " it changes. `serve` may make it, like that of PGOF_SUBMIT_AUTH_KEYS_FILE."
        ),
    )
    default_service: str = Field(
        default="default",
        pattern=rf"^{SERVICE_PATTERN}$",
        description="The service for requests that name none, unless their key is for just one.",
    )
    profefe_open: bool = Field(
        default=False,
        description=(
            "Whether profefe's API, /api/0, accepts requests without a key. Only for trusted networks."
        ),
    )
    datadog_open: bool = Field(
        default=False,
        description=(
            "Whether uploads of Datadog's tracers are accepted without a key. Only for trusted networks."
        ),
    )
    autopgo_open: bool = Field(
        default=False,
        description=(
            "Whether autopgo's API, /api/profile, accepts requests without a key. Only for trusted networks."
        ),
    )
    metrics_auth_keys_file: Path | None = Field(
        default=None,
        description=(
            "The file of keys that may scrape /metrics, one per line. It is read again when it changes."
        ),
    )
    metrics_open: bool = Field(
        default=False,
        description="Whether /metrics accepts requests without a key. Only for trusted networks.",
    )
    root_path: Annotated[str, AfterValidator(parse_root_path)] = Field(
        default="",
        description=(
            "The path below which a proxy serves the collector, such as /pgo: links, redirects and cookies"
            " begin with it. It doesn't matter whether the proxy removes it from the paths of requests."
        ),
    )
    trusted_proxies: Annotated[str, AfterValidator(_check_proxies)] = Field(
        default="",
        description=(
            "The addresses and networks of proxies, comma-separated, whose header X-Forwarded-Prefix takes"
            " the place of PGOF_ROOT_PATH. From others the header is ignored."
        ),
    )
    session_hours: float = Field(
        default=12,
        gt=0,
        le=8760,
        description="How long a sign-in to the pages at `/ui` lasts, in hours.",
    )
    session_secret_file: Path | None = Field(
        default=None,
        description=(
            "The file with the secret, of 32 bytes or more, that signs sessions of the pages. Several"
            " collectors have to share it. It is read at the start. By default each collector makes its"
            " own, in the data folder."
        ),
    )
    sign_in_attempts: float = Field(
        default=10,
        gt=0,
        description=(
            "How many wrong keys an address may try at `/ui` before it has to wait; inf for any number."
        ),
    )
    sign_in_wait: float = Field(
        default=300,
        ge=1,
        le=86400,
        description=(
            "The longest wait after wrong keys, in seconds. The first wait is 1 second, and each next"
            " one twice as long."
        ),
    )
    source_links: Annotated[str, AfterValidator(_check_source_links)] = Field(
        default="",
        description=(
            "Where the source of modules is shown, for links from the lines of a function: rules MODULE=URL,"
            " separated by blanks, with {module}, {version}, {path} and {line} in the URL. The collector"
            " opens none of them."
        ),
    )
    live_streams: int = Field(
        default=100,
        ge=0,
        le=_MOST,
        description=(
            "How many open pages may be told of new profiles at once. Beyond it, the answer is 503, and"
            " the page asks again every 30 seconds."
        ),
    )
    capture_targets: Annotated[str, AfterValidator(_check_targets)] = Field(
        default="",
        description=(
            "Where the pages can take a profile now: rules SERVICE=URL or SERVICE/TYPE=URL, separated by"
            " blanks. Anyone who may see a service can have the collector ask its URLs, and no others."
        ),
    )
    capture_seconds: float = Field(
        default=60,
        gt=0,
        le=3600,
        description="How long a target of PGOF_CAPTURE_TARGETS may take for a profile, in seconds.",
    )
    capture_ca_file: Path | None = Field(
        default=None,
        description=(
            "The authorities, in PEM, that certify the targets of PGOF_CAPTURE_TARGETS. Without it, the"
            " public authorities count."
        ),
    )
    capture_keys_file: Path | None = Field(
        default=None,
        description=(
            "The file of keys for PGOF_CAPTURE_TARGETS: on each line the host and port of a target, and the"
            " key that is sent to it as `Authorization: Bearer KEY`. It is read for each profile."
        ),
    )
    captures: int = Field(
        default=2,
        gt=0,
        le=_MOST,
        description=(
            "How many profiles may be taken at once from PGOF_CAPTURE_TARGETS. Each may take as much memory"
            " as the largest submit. Beyond it, the answer is 503."
        ),
    )
    label_values: int = Field(
        default=100,
        gt=0,
        le=10_000,
        description=(
            "How many values of a label the pages list to choose from: those with the most profiles. A search"
            " finds the others."
        ),
    )
    selection_characters: int = Field(
        default=1000,
        gt=0,
        le=100_000,
        description=(
            "The longest selection and filters on the pages, in characters of the link that holds them. A"
            " page has up to a thousand such links. Beyond it, the answer is 400."
        ),
    )
    pattern_seconds: float = Field(
        default=5,
        gt=0,
        description=(
            "How much CPU time the patterns of one request (`focus`, `ignore` and `hide`) may take for"
            " the names in one service's profiles, in seconds. Beyond it, the answer is 400."
        ),
    )
    pages_megabytes: float = Field(
        default=16,
        ge=0,
        le=_MOST >> 20,
        description=(
            "How much memory the cached answers of the pages may take, in MiB. A cached page isn't"
            " computed again for the same profiles. 0 caches none."
        ),
    )
    timeline_steps: int = Field(
        default=120,
        gt=0,
        le=1000,
        description="The largest number of steps in the timeline on the pages of a service.",
    )
    rules_dir: Path = Field(
        default=Path("./rules"),
        description="The folder of rules files, named `<service>.rules`.",
    )
    release_overlap: float = Field(
        default=0.85,
        ge=0,
        le=1,
        description=(
            "Replace the release when its overlap with the merge falls below this, from 0 to 1; 0 for never."
        ),
    )
    release_days: float = Field(
        default=30,
        ge=0,
        description="Replace the release when it is older than this, in days; inf for never.",
    )
    release_check_seconds: float = Field(
        default=60,
        ge=0,
        description="The least time between two comparisons of the release with the merge, in seconds.",
    )
    releases_kept: int = Field(
        default=20,
        gt=0,
        description="How many of the newest releases to keep. The current one is always kept.",
    )
    release_sets: int = Field(
        default=100,
        ge=0,
        description="How many sets of several services, each with its weights, may have releases.",
    )
    max_compressed_bytes: int = Field(
        default=8 << 20, gt=0, le=_MOST, description="The largest gzip body that a submit may have, in bytes."
    )
    max_inflated_bytes: int = Field(
        default=8 << 20,
        gt=0,
        le=_MOST,
        description=(
            "The largest uncompressed profile (sent bare or inflated) and the largest list of"
            " symbols, in bytes."
        ),
    )
    max_name_bytes: int = Field(
        default=32 << 10,
        gt=0,
        le=_MOST,
        description="The longest name or other string in a submitted profile, in bytes.",
    )
    push_profiles: int = Field(
        default=100,
        gt=0,
        le=10_000,
        description=(
            "How many profiles one request of Pyroscope's, Parca's or Datadog's clients may have. Together"
            " they have the limits of one submit. Beyond it, the answer is 400."
        ),
    )
    query_labels: int = Field(
        default=10_000,
        gt=0,
        le=30_000,
        description=(
            "How many label values or series an answer to Grafana may have, and how many values of a label a"
            " regular expression may match. Beyond it, the answer is 400."
        ),
    )
    query_nodes: int = Field(
        default=16_384,
        gt=0,
        le=100_000,
        description=(
            "How many calls a flame graph for Grafana may have; its data source asks for a maximum of"
            " nodes. Beyond it, the answer is 400."
        ),
    )
    query_points: int = Field(
        default=100_000,
        gt=0,
        le=1_000_000,
        description=(
            "How many points the series in an answer to Grafana may have together. Beyond it, the answer is"
            " 400."
        ),
    )
    otlp_profiles: int = Field(
        default=1000,
        gt=0,
        le=10_000,
        description=(
            "How many profiles one request of OTLP may have: an eBPF profiler sends one for each process."
            " Together they have the limits of one submit. Beyond it, the answer is 400."
        ),
    )
    otlp_labels: str = Field(
        default=(
            "service.version,service.instance.id,service.namespace,deployment.environment*,k8s.*.name,"
            "host.name,cloud.region,cloud.availability_zone,process.executable.name,job,instance"
        ),
        description=(
            "The attributes of OTLP's resources and scopes that become labels of the series,"
            " comma-separated; * stands for any text. Each combination of values is a series of its own."
        ),
    )
    otlp_sample_labels: str = Field(
        default="thread.name,process.context.label.*",
        description=(
            "The attributes of OTLP's samples that become labels of samples, comma-separated; * stands for"
            " any text. Samples that differ in no label are added up."
        ),
    )
    join_seconds: float = Field(
        default=60,
        gt=0,
        description=(
            "The pause between two searches for Go profiles, in seconds; inf for never. Go profiles give"
            " start lines to the eBPF profiles of their service."
        ),
    )
    symbols_bytes: int = Field(
        default=32 << 20,
        gt=0,
        le=_MOST,
        description=(
            "The largest upload of a program's symbols, as it is sent and uncompressed, in bytes. Beyond it,"
            " the answer is 413."
        ),
    )
    symbols_functions: int = Field(
        default=200_000,
        gt=0,
        le=_MOST,
        description=(
            "How many functions of a build may have start lines. An upload of symbols with more is"
            " refused with 413."
        ),
    )
    symbols_builds: int = Field(
        default=100,
        gt=0,
        le=_MOST,
        description=(
            "How many builds of a service keep start lines. The least recently updated go first. Each"
            " build id of an upload is a build."
        ),
    )
    binary_bytes: int = Field(
        default=512 << 20,
        gt=0,
        le=_MOST,
        description=(
            "The largest upload of a program, as it is sent and with its sections uncompressed, in bytes."
            " Beyond it, the answer is 413 or 400."
        ),
    )
    binary_seconds: float = Field(
        default=60,
        gt=0,
        le=86_400,
        description=(
            "How long llvm-symbolizer may read an uploaded program for one merge, in seconds. Beyond it, the"
            " merge is refused."
        ),
    )
    binaries_kept: int = Field(
        default=50,
        ge=0,
        le=10_000,
        description=(
            "How many uploaded programs a service keeps, for the names of functions and the format llvm. The"
            " oldest uploads go first. 0 takes and uses none. Needs the extra `binary` of the package; for"
            " the format llvm, llvm-symbolizer, too."
        ),
    )
    binaries_megabytes: float = Field(
        default=2048,
        gt=0,
        description=(
            "How much the uploaded programs of a service may take on disk, in MiB. The oldest uploads are"
            " deleted first; the newest one stays."
        ),
    )
    shared_megabytes: float = Field(
        default=10_240,
        gt=0,
        description=(
            "How much programs that name the functions of every service may take on disk, in MiB. Agents"
            " that name no service upload them, with a key that is for all services. The oldest uploads are"
            " deleted first."
        ),
    )
    debuginfod_urls: Annotated[str, AfterValidator(_check_debuginfod)] = Field(
        default="",
        description=(
            "The URLs of debuginfod servers, separated by blanks, that are asked in this order for programs"
            " whose functions have no names in profiles. They learn build ids. Empty for none."
        ),
    )
    debuginfod_builds: int = Field(
        default=300,
        gt=0,
        le=10_000,
        description="How many build ids to ask debuginfod servers for in an hour.",
    )
    copies_megabytes: float = Field(
        default=2048,
        gt=0,
        description=(
            "How much the tables made of uploaded programs' symbols may take on disk, and, if PGOF_STORAGE is"
            " a bucket, local copies of programs and start lines, in MiB. The least recently used are deleted"
            " first."
        ),
    )
    binary_days: float = Field(
        default=inf,
        gt=0,
        description="Delete a program when its last upload is older than this, in days; inf for never.",
    )
    grpc_address: Annotated[str, AfterValidator(_check_optional_address)] = Field(
        default="",
        description=(
            "The address to listen on for OTLP and Parca over gRPC, such as 127.0.0.1:4317: host:port, or"
            " :port for every interface. Port 0 picks a free one. Empty for none."
        ),
    )
    grpc_calls: int = Field(
        default=16,
        gt=0,
        le=10_000,
        description=(
            "How many calls of gRPC may be served at once, each of which may have a message as large as a"
            " submit. Beyond the number, the answer is UNAVAILABLE."
        ),
    )
    grpc_connections: int = Field(
        default=1024,
        gt=0,
        le=_MOST,
        description=(
            "The largest number of open connections to the port of gRPC. Beyond it, a new connection is"
            " closed at once."
        ),
    )
    grpc_connection_seconds: float = Field(
        default=3600,
        gt=0,
        le=10**6,
        description=(
            "How long a connection to the port of gRPC may last, in seconds. Then its client is told to open"
            " another one, and calls that are being served have PGOF_BODY_TIMEOUT and PGOF_ANSWER_TIMEOUT to"
            " end."
        ),
    )
    max_output_bytes: int = Field(
        default_factory=default_output_bytes,
        gt=0,
        le=_MOST,
        description=(
            "The largest answer made from profiles, such as a merge in any format, a table or a"
            " report, in bytes. A larger one is refused before it is made. A worker may use three"
            " times this much memory for one answer. Default: 256 MiB, or a third of the default of"
            " `PGOF_WORKER_MEGABYTES` if that is less."
        ),
    )
    workers: int = Field(
        default_factory=default_workers,
        gt=0,
        description=(
            "The number of worker processes, which decode and merge profiles. Default: the number of"
            " cores, at least 2."
        ),
    )
    rows_megabytes: int = Field(
        default_factory=default_rows_megabytes,
        gt=0,
        le=1 << 30,
        description=(
            "How much memory all workers together may use to keep decoded profiles between merges, in"
            " MiB. docs/capacity.md says what this covers. Default: 1024, or a quarter of the memory"
            " if that is less."
        ),
    )
    worker_megabytes: int = Field(
        default_factory=default_worker_megabytes,
        gt=0,
        le=1 << 30,
        description=(
            "How much memory one worker may use for a task, besides the decoded profiles it keeps, in"
            " MiB. A task that needs more is refused. Default: each worker's share of four fifths of"
            " the memory, less what idle processes and kept profiles take; from 64 to 4096."
        ),
    )
    task_seconds: float = Field(
        default=600,
        gt=0,
        le=86_400,
        description=(
            "How long a task may run in a worker, and how long it may wait for one, in seconds. A"
            " worker that takes longer is replaced, and the request is refused."
        ),
    )
    body_cpu_seconds: float = Field(
        default=5,
        gt=0,
        le=86_400,
        description=(
            "How much CPU time a worker may take to read a submitted body, in seconds a MiB of the body as it"
            " was sent; a smaller one may take as much as one MiB. Beyond it, the answer is 422. If the merge"
            " engine isn't compiled, ten times as much."
        ),
    )
    bulk: Annotated[str, AfterValidator(_check_bulk)] = Field(
        default=_OWN_WORKERS,
        description=(
            "What reads very many profiles at once: `workers`, for the workers of this server, or the"
            " Dask cluster of the scheduler at dask://host:port, or at dask+tls://host:port with Dask's"
            " own settings for TLS. Needs the extra `dask` of the package."
        ),
    )
    bulk_blobs: int = Field(
        default=5000,
        gt=0,
        le=_MOST,
        description="The Dask cluster reads the profiles of a service if at least this many are unread.",
    )
    min_free_megabytes: float = Field(
        default=64,
        ge=0,
        description="`/readyz` fails while the data folder's disk has less free space than this, in MiB.",
    )
    merges_kept: int = Field(
        default=500,
        gt=0,
        le=_MOST,
        description=(
            "How many finished merges to keep on disk; each format and weighting counts. The newest are kept."
        ),
    )
    rollup_days: float = Field(
        default=inf,
        gt=0,
        description=(
            "Combine the profiles of one series and day into one when the day is this old, in days;"
            " inf for never."
        ),
    )
    rollup_labels: str = Field(
        default="*", description="The labels that roll-ups keep, comma-separated; * for all."
    )
    keep_days: float = Field(
        default=inf,
        gt=0,
        description="Delete single profiles that are older than this, in days; inf for never.",
    )
    keep_megabytes: float = Field(
        default=inf,
        gt=0,
        description=(
            "Delete the oldest single profiles while all of them take more than this, in MiB; inf for never."
        ),
    )
    keep_combined_days: float = Field(
        default=inf, gt=0, description="Like `PGOF_KEEP_DAYS`, for combined and rolled-up profiles."
    )
    keep_combined_megabytes: float = Field(
        default=inf, gt=0, description="Like `PGOF_KEEP_MEGABYTES`, for combined and rolled-up profiles."
    )
    retention_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description=(
            "After the clock moved ahead by more than a day, retention deletes no more than this share of the"
            " single profiles, of the combined ones and of the programs at once because of their age; 1 for"
            " any number."
        ),
    )
    clock_ahead_seconds: float = Field(
        default=300,
        ge=0,
        description=(
            "How far after now a profile may say that it was taken, in seconds; inf for any time. One that"
            " says a later time, of a host whose clock is ahead, is stored with the time at which it comes."
        ),
    )
    upkeep_seconds: float = Field(
        default=3600, gt=0, description="The pause between two runs of retention and roll-ups, in seconds."
    )
    quota_profiles: float = Field(
        default=inf,
        gt=0,
        description="How many profiles of one service to accept per day (UTC); inf for any number.",
    )
    quota_megabytes: float = Field(
        default=inf, gt=0, description="How much one service may store, in MiB; inf for any amount."
    )
    webhook_url: HttpUrl | None = Field(
        default=None,
        description="The URL to post an event to for each stored profile. Without it there are no events.",
    )
    webhook_secret_file: Path = Field(
        default=Path("/secret/webhook_secret"),
        description=(
            "The file of secrets that sign events: `whsec_…`, one per line. It is read at each attempt."
        ),
    )
    webhook_timeout: float = Field(
        default=15, gt=0, description="How long the receiver of an event may take to answer, in seconds."
    )
    webhook_days: float = Field(
        default=3, gt=0, description="How long to retry an event before dropping it, in days."
    )
    webhook_events_kept: int = Field(
        default=10_000,
        gt=0,
        le=_MOST,
        description="How many events may wait. Beyond this, the oldest are dropped.",
    )
    max_header_bytes: int = Field(
        default=64 << 10,
        gt=0,
        le=1 << 30,
        description=(
            "The largest total size of a request's headers, or of its trailers, in bytes. Beyond it,"
            " the answer is 431."
        ),
    )
    max_headers: int = Field(
        default=100,
        gt=0,
        le=_MOST,
        description=(
            "The largest number of headers in a request, or of lines if some have several. Beyond it, the"
            " answer is 431."
        ),
    )
    min_chunk_bytes: int = Field(
        default=64,
        gt=0,
        le=_MOST,
        description=(
            "The smallest mean size of the chunks of a chunked request body, in bytes. Below it, after 256"
            " chunks, the answer is 400. 1 for any."
        ),
    )
    max_url_bytes: int = Field(
        default=16 << 10,
        gt=0,
        le=_MOST,
        description="The longest path and query of a URL, in bytes. Beyond it, the answer is 414.",
    )
    head_timeout: float = Field(
        default=10,
        gt=0,
        description=(
            "How long a request's first line and headers may take to arrive, in seconds. Beyond it,"
            " the answer is 408."
        ),
    )
    idle_timeout: float = Field(
        default=75,
        gt=0,
        description="How long a connection may stay open between two requests, in seconds.",
    )
    answer_timeout: float = Field(
        default=60,
        gt=0,
        description=(
            "How long a client may read nothing of its answer before the connection is closed, in seconds."
        ),
    )
    max_connections: int = Field(
        default=4096,
        gt=0,
        le=_MOST,
        description=(
            "The largest number of open connections. Beyond it, a connection that waits for a request"
            " is closed to make room; if there is none, the answer is 503. The limit is lower if the"
            " process can't have as many file descriptors."
        ),
    )
    max_connections_per_address: float = Field(
        default=inf,
        gt=0,
        description=(
            "The largest number of open connections from one address (for IPv6, one /64). Beyond it,"
            " the answer is 503. Use inf, for any number, behind a proxy, where all connections have"
            " one address."
        ),
    )
    body_memory_bytes: int = Field(
        default=64 << 20,
        gt=0,
        le=_MOST,
        description=(
            "How much memory all arriving bodies together may take, in bytes. Beyond it, they are"
            " written to disk as they arrive. Unfinished heads of requests may take a quarter as much; beyond"
            " it, those that began first are answered with 503."
        ),
    )
    incoming_megabytes: float = Field(
        default=1024,
        gt=0,
        description=(
            "How much disk all arriving bodies together may take, in MiB. A body that needs more is"
            " refused with 503."
        ),
    )
    body_timeout: float = Field(
        default=60,
        gt=0,
        description=("How long a request body may take to arrive, in seconds. Beyond it, the answer is 408."),
    )
    trace_keys_file: Path | None = Field(
        default=None,
        description=(
            "The file of keys whose holders may have their requests traced, one per line. It is read again"
            " when it changes. Without it, no signature is accepted."
        ),
    )
    trace_rate: float = Field(
        default=0,
        ge=0,
        le=1,
        description="The share of other requests to trace, drawn at random, from 0 to 1.",
    )
    trace_parts: Annotated[str, AfterValidator(_check_parts)] = Field(
        default="*",
        description=(f"The parts whose steps are recorded, comma-separated; * for all: {', '.join(PARTS)}."),
    )
    trace_values: bool = Field(
        default=False,
        description=(
            "Whether a trace contains the query string of its request, which names services, labels and"
            " times."
        ),
    )
    trace_osprofiler: bool = Field(
        default=True,
        description=(
            "Whether OSProfiler's headers, which have no time in them and so can be sent again, are accepted."
        ),
    )
    trace_window: float = Field(
        default=300,
        gt=0,
        le=86400,
        description="How far the time of a signature may be from now, in seconds.",
    )
    trace_spans: int = Field(
        default=1000,
        gt=0,
        le=100_000,
        description="The largest number of steps to record of one request. Steps beyond it are only counted.",
    )
    trace_steps: int = Field(
        default=64,
        gt=0,
        le=100,  # as fit into one header
        description="The largest number of steps that a client may report around its traced requests.",
    )
    trace_step_seconds: float = Field(
        default=30 * 86400,
        gt=0,
        le=366 * 86400,
        description="The longest total time that a client may report around its traced requests, in seconds.",
    )
    traces_waiting: int = Field(
        default=1000,
        gt=0,
        le=_MOST,
        description="How many traces may wait to be written. Beyond it, they are dropped and counted.",
    )
    trace_days: float = Field(
        default=7, gt=0, description="Delete traces that are older than this, in days; inf for never."
    )
    trace_otlp_url: HttpUrl | None = Field(
        default=None,
        description=(
            "Where to send traces, too: a URL that takes OTLP over HTTP, such as"
            " http://127.0.0.1:4318/v1/traces. Needs the extra `tracing` of the package."
        ),
    )
    trace_megabytes: float = Field(
        default=64,
        ge=0,
        description=(
            "Delete the oldest traces while all of them take more than this, in MiB; 0 for no traces in the"
            " data folder at all."
        ),
    )
    unknown_settings: Literal["refuse", "warn"] = Field(
        default="refuse",
        description=(
            "What an environment variable does that begins with PGOF_ and is no setting, such as a misspelled"
            " one: refuse, so that no command runs, or warn, such as for going back to an older version."
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description=(
            "The lowest level to log: debug, info, warning or error. Each request is logged at info."
        ),
    )

    @property
    def makes_keys(self) -> bool:
        """True if `serve` makes missing keys files: in the data folder, if only this machine connects."""
        own = _own_keys(self.directory)
        return self._is_of_this_machine and all(getattr(self, name) == own[name] for name in own)

    @property
    def has_no_keys(self) -> bool:
        """True if no setting names a keys file, there is no /secret, and only this machine connects."""
        is_named = not self.model_fields_set.isdisjoint(_own_keys(self.directory))
        return self._is_of_this_machine and not is_named and not _SECRETS.exists()

    @property
    def _is_of_this_machine(self) -> bool:
        addresses = filter(None, (self.bind_address, self.grpc_address))
        return all(is_loopback(split_address(address)[0]) for address in addresses)

    @property
    def dask_address(self) -> str | None:
        """Dask's address of the scheduler, None if there is no cluster."""
        return None if self.bulk == _OWN_WORKERS else dask_address(self.bulk)

    @property
    def servers_of_debuginfod(self) -> tuple[DebuginfodServer, ...]:
        """The debuginfod servers, in the order in which they are asked."""
        return parse_servers(self.debuginfod_urls)

    @property
    def has_traces(self) -> bool:
        """Whether any request can be traced."""
        return self.trace_keys_file is not None or self.trace_rate > 0

    @property
    def traced_parts(self) -> frozenset[str]:
        """The parts whose steps are recorded."""
        return parts_of(self.trace_parts)

    @property
    def copies_bytes(self) -> int:
        """The bytes that copies of what is in a bucket, and tables of symbols, may take."""
        return int(self.copies_megabytes * (1 << 20))

    @property
    def limits(self) -> Limits:
        """The limits on a submitted profile."""
        return Limits(
            compressed_bytes=self.max_compressed_bytes,
            inflated_bytes=self.max_inflated_bytes,
            name_bytes=self.max_name_bytes,
        )

    @property
    def binary_limits(self) -> BinaryLimits:
        """The limits on an uploaded program, and on what reads it in a worker."""
        return BinaryLimits(
            size=self.binary_bytes,
            unpacked=self.binary_bytes,
            symbols=2_000_000,
            relocations=5_000_000,
            symbolizer_seconds=self.binary_seconds,
            # It maps the program and its own libraries; a worker's bound on memory holds for its heap, too.
            symbolizer_bytes=(self.worker_megabytes << 20) + 2 * self.binary_bytes + (1 << 30),
        )

    @property
    def output_budget(self) -> Budget:
        """The bound on answers that are made from profiles."""
        return Budget(self.max_output_bytes)

    @property
    def has_metrics(self) -> bool:
        """Whether anyone can scrape /metrics."""
        return self.metrics_open or self.metrics_auth_keys_file is not None

    @property
    def is_shared(self) -> bool:
        """True if several collectors may use the catalog and the blobs."""
        return bool(self.catalog and self.storage)

    @property
    def labels_of_rollups(self) -> frozenset[str]:
        """The labels that roll-ups keep; empty if they keep all, as with `*` or an empty variable."""
        keys = [key.strip() for key in self.rollup_labels.split(",")]
        return frozenset() if "*" in keys else frozenset(map(unquote, filter(None, keys)))

    @property
    def largest_body(self) -> int:
        """The largest body of a submit, gzip or not, in bytes."""
        return max(self.max_compressed_bytes, self.max_inflated_bytes)


# What most people set, in this order; all others are for a need that few have.
BASIC = (
    "bind_address",
    "directory",
    "submit_auth_keys_file",
    "merge_auth_keys_file",
    "default_service",
    "metrics_open",
    "root_path",
    "keep_days",
    "keep_megabytes",
    "rollup_days",
    "storage",
    "catalog",
    "workers",
    "settings_file",
)


def given_variables(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the variables of an environment, and those that its settings file gives, which count for less.

    The latter come first, with names in upper case. Raises SettingsInvalid.
    """
    path = {name.upper(): value for name, value in environment.items()}.get(_FILE)
    if not path:
        return dict(environment)
    try:
        in_file = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsInvalid(f"{_FILE}: {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsInvalid(f"{_FILE}: {path} isn't TOML: {error}") from error
    return {f"{PREFIX}{name}".upper(): value for name, value in in_file.items()} | dict(environment)


def unknown_variables(environment: Mapping[str, object]) -> dict[str, str]:
    """Return what to do about each variable of an environment that looks like a setting and is none, by name.

    A variable that Kubernetes makes for a service called pgof, or pgof-something, doesn't look like one.
    """
    known = [f"{PREFIX}{name}".upper() for name in Settings.model_fields]
    unknown = {}
    for name in sorted(environment):
        is_kubernetes = _OF_KUBERNETES.fullmatch(name) or str(environment[name]).startswith(_LINKS)
        if name.upper().startswith(PREFIX) and name.upper() not in known and not is_kubernetes:
            near = get_close_matches(name.upper(), known, 1)
            unknown[name] = f"did you mean {near[0]}?" if near else "unset it"
    return unknown


def read_settings(*, takes_unknown: bool = False) -> Settings:
    """Return the settings of the environment and its file. Raises SettingsInvalid, which names the variables.

    The case of letters in names of variables doesn't matter. An unknown variable is invalid as well, unless
    PGOF_UNKNOWN_SETTINGS allows it, or `takes_unknown`.
    """
    given_names = given_variables(os.environ)
    variables = {name.upper(): value for name, value in given_names.items()}
    names = {name: f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    given = {name: variables[variable] for name, variable in names.items() if variable in variables}
    try:
        settings = Settings.model_validate(given)
        # A socket that systemd passes may listen on any address.
        if settings.has_no_keys and "LISTEN_FDS" not in variables:
            settings = settings.model_copy(update=_own_keys(settings.directory))
    except ValidationError as error:
        faults = [f"{names[str(fault['loc'][0])]}: {fault['msg']}" for fault in error.errors()]
        raise SettingsInvalid("; ".join(faults)) from None
    unknown = unknown_variables(given_names)
    if unknown and settings.unknown_settings == "refuse" and not takes_unknown:
        faults = [f"{name} isn't a setting: {fix}" for name, fix in unknown.items()]
        raise SettingsInvalid("; ".join([*faults, "or set PGOF_UNKNOWN_SETTINGS=warn"]))
    return settings
