"""The table of settings: a field for each, with its default, its bounds and its help.

A field made by `follower` or `follows` follows the master above it: see `families`. The table of those that
users see is in docs/reference/settings.md.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Literal

from pgo_collector.model.series import SERVICE_PATTERN
from pgo_collector.settings.families import (
    Family,
    body_memory_bytes,
    default_workers,
    follows,
    max_output_bytes,
    pages_megabytes,
    rows_megabytes,
    worker_megabytes,
)
from pgo_collector.settings.fields import Above, FieldTable, field
from pgo_collector.settings.texts import (
    OWN_WORKERS,
    URL,
    Address,
    Bulk,
    CaptureTargets,
    CatalogURL,
    DebuginfodURLs,
    OptionalAddress,
    RootPath,
    SourceRules,
    StorageURL,
    TrustedProxies,
)

SECRETS, SUBMIT_KEYS, MERGE_KEYS = Path("/secret"), "submit_keys", "merge_keys"
# The catalog and zlib take no number of more than 63 bits.
_MOST = 1 << 62

_BINARY_BYTES = Family("binary_bytes", 512 << 20)
_BODY_TIMEOUT = Family("body_timeout", 60)
_CONNECTIONS = Family("max_connections", 4096)
_INFLATED_BYTES = Family("max_inflated_bytes", 8 << 20)
_RELEASES_KEPT = Family("releases_kept", 20)
_STORAGE_SECONDS = Family("storage_seconds", 10)
_TASK_SECONDS = Family("task_seconds", 600)
_UPKEEP_SECONDS = Family("upkeep_seconds", 3600)


def _is_open(above: Above) -> bool:
    return bool(above["open_apis"])


class Table(FieldTable):
    """The table. A setting's environment variable is `PGOF_` and its name in upper case."""

    bind_address: Address = field(
        default="127.0.0.1:8080",
        description=(
            "The address to listen on: host:port, or :port for every interface. Port 0 picks a free one."
        ),
    )
    settings_file: Path | None = field(
        default=None,
        description=(
            "A file of settings, in TOML: their names in lower case and without PGOF_, such as"
            " `keep_days = 90`. Variables of the environment count for more. It is read at the start."
        ),
    )
    directory: Path = field(
        default=Path("./profiles"),
        description="The data folder. It is created if missing. Only one server at a time can use it.",
    )
    storage: StorageURL = field(
        default="",
        description=(
            "Where the blobs, releases, uploaded programs and start lines are: s3://bucket/prefix,"
            " gs://bucket/prefix or az://container/prefix. By default they are in the data folder. Only"
            " collectors with the same PGOF_CATALOG can use a prefix."
        ),
    )
    storage_seconds: float = field(
        default=_STORAGE_SECONDS.default,
        ge=0.1,
        le=300,
        description=(
            "The longest that a request to the object store of PGOF_STORAGE may take, in seconds. It is tried"
            " up to three times meanwhile; then what needs it is answered with 503."
        ),
    )
    catalog_connect_seconds: float = _STORAGE_SECONDS.follower(
        5.0, "seconds to wait for a connection to PostgreSQL", ge=1, le=3600
    )
    catalog_statement_seconds: float = _STORAGE_SECONDS.follower(
        60.0, "seconds that one statement in PostgreSQL may take", ge=1, le=86_400
    )
    catalog: CatalogURL = field(
        default="",
        description=(
            "The database of the catalog: empty for SQLite in the data folder, or a URL of PostgreSQL, such"
            " as postgresql://user@host/database. Needs the extra `postgresql` of the package. Several"
            " collectors can use it if their blobs are in the same PGOF_STORAGE; else only one."
        ),
    )
    catalog_connections: int = field(
        default=8,
        gt=0,
        le=1000,
        description=(
            "How many connections to PostgreSQL may read the catalog at once; one more writes it. Beyond the"
            " number, a request waits for one to be free."
        ),
    )
    submit_auth_keys_file: Path = field(
        default=SECRETS / SUBMIT_KEYS,
        description=(
            "The file of keys that may submit, one per line. It is read again when it changes. If no setting"
            " names a keys file, there is no folder /secret, and the addresses to listen on are of this"
            " machine only, `serve` makes keys in the data folder."
        ),
    )
    merge_auth_keys_file: Path = field(
        default=SECRETS / MERGE_KEYS,
        description=(
            "The file of keys that may read, merge and combine, one per line. It is read again when"
            " it changes. `serve` may make it, like that of PGOF_SUBMIT_AUTH_KEYS_FILE."
        ),
    )
    default_service: str = field(
        default="default",
        pattern=SERVICE_PATTERN,
        description="The service for requests that name none, unless their key is for just one.",
    )
    open_apis: bool = field(
        default=False,
        description=(
            "Whether the APIs whose clients may have no key to send accept requests without one: profefe's,"
            " uploads of Datadog's tracers, and autopgo's. Only for trusted networks."
        ),
    )
    profefe_open: bool = follows("open_apis", _is_open, "profefe's API, /api/0", default="False")
    datadog_open: bool = follows("open_apis", _is_open, "uploads of Datadog's tracers", default="False")
    autopgo_open: bool = follows("open_apis", _is_open, "autopgo's API, /api/profile", default="False")
    metrics_auth_keys_file: Path | None = field(
        default=None,
        description=(
            "The file of keys that may scrape /metrics, one per line. It is read again when it changes."
        ),
    )
    metrics_open: bool = field(
        default=False,
        description="Whether /metrics accepts requests without a key. Only for trusted networks.",
    )
    function_metrics_file: Path | None = field(
        default=None,
        description=(
            "The file of rules, in TOML, that say which functions' seconds and shares are metrics. It is read"
            " again when it changes."
        ),
    )
    root_path: RootPath = field(
        default="",
        description=(
            "The path below which a proxy serves the collector, such as /pgo: links, redirects and cookies"
            " begin with it. It doesn't matter whether the proxy removes it from the paths of requests."
        ),
    )
    trusted_proxies: TrustedProxies = field(
        default="",
        description=(
            "The addresses and networks of proxies, comma-separated, whose header X-Forwarded-Prefix takes"
            " the place of PGOF_ROOT_PATH. From others the header is ignored."
        ),
    )
    session_secret_file: Path | None = field(
        default=None,
        description=(
            "The file with the secret, of 32 bytes or more, that signs sessions of the pages. Several"
            " collectors have to share it. It is read at the start. By default each collector makes its"
            " own, in the data folder."
        ),
    )
    sign_in_attempts: float = field(
        default=10,
        gt=0,
        description=(
            "How many wrong keys an address may try at `/ui` before it has to wait; inf for any number."
        ),
    )
    source_links: SourceRules = field(
        default="",
        description=(
            "Where the source of modules is shown, for links from the lines of a function: rules MODULE=URL,"
            " separated by blanks, with {module}, {version}, {path} and {line} in the URL. The collector"
            " opens none of them."
        ),
    )
    capture_targets: CaptureTargets = field(
        default="",
        description=(
            "Where the pages can take a profile now: rules SERVICE=URL or SERVICE/TYPE=URL, separated by"
            " blanks. Anyone who may see a service can have the collector ask its URLs, and no others."
        ),
    )
    capture_ca_file: Path | None = field(
        default=None,
        description=(
            "The authorities, in PEM, that certify the targets of PGOF_CAPTURE_TARGETS. Without it, the"
            " public authorities count."
        ),
    )
    capture_keys_file: Path | None = field(
        default=None,
        description=(
            "The file of keys for PGOF_CAPTURE_TARGETS: on each line the host and port of a target, and the"
            " key that is sent to it as `Authorization: Bearer KEY`. It is read for each profile."
        ),
    )
    rules_dir: Path = field(
        default=Path("./rules"),
        description="The folder of rules files, named `<service>.rules`.",
    )
    release_overlap: float = field(
        default=0.85,
        ge=0,
        le=1,
        description=(
            "Replace the release when its overlap with the merge falls below this, from 0 to 1; 0 for never."
        ),
    )
    release_days: float = field(
        default=30,
        ge=0,
        description="Replace the release when it is older than this, in days; inf for never.",
    )
    releases_kept: int = field(
        default=int(_RELEASES_KEPT.default),
        gt=0,
        description="How many of the newest releases to keep. The current one is always kept.",
    )
    merges_kept: int = _RELEASES_KEPT.follower(
        500, "finished merges to keep on disk, of which each format and weighting counts", gt=0, le=_MOST
    )
    max_inflated_bytes: int = field(
        default=int(_INFLATED_BYTES.default),
        gt=0,
        le=_MOST,
        description=(
            "The largest uncompressed profile (sent bare or inflated) and the largest list of"
            " symbols, in bytes."
        ),
    )
    max_compressed_bytes: int = _INFLATED_BYTES.follower(8 << 20, "bytes of a gzip body", gt=0, le=_MOST)
    max_name_bytes: int = _INFLATED_BYTES.follower(
        32 << 10, "bytes of a name or other string in a profile", gt=0, le=_MOST
    )
    push_profiles: int = _INFLATED_BYTES.follower(
        100, "profiles in one request of Pyroscope's, Parca's or Datadog's clients", gt=0, le=10_000
    )
    otlp_profiles: int = _INFLATED_BYTES.follower(1000, "profiles in one request of OTLP", gt=0, le=10_000)
    symbols_bytes: int = _INFLATED_BYTES.follower(
        32 << 20, "bytes of an upload of a program's symbols, as sent and uncompressed", gt=0, le=_MOST
    )
    symbols_functions: int = _INFLATED_BYTES.follower(
        200_000, "functions of a build that may have start lines", gt=0, le=_MOST
    )
    min_free_megabytes: float = _INFLATED_BYTES.follower(
        64.0, "MiB that the data folder's disk must have free for /readyz to pass", ge=0, le=inf
    )
    otlp_labels: str = field(
        default=(
            "service.version,service.instance.id,service.namespace,deployment.environment*,k8s.*.name,"
            "host.name,cloud.region,cloud.availability_zone,process.executable.name,job,instance"
        ),
        description=(
            "The attributes of OTLP's resources and scopes that become labels of the series,"
            " comma-separated; * stands for any text. Each combination of values is a series of its own."
        ),
    )
    otlp_sample_labels: str = field(
        default="thread.name,process.context.label.*",
        description=(
            "The attributes of OTLP's samples that become labels of samples, comma-separated; * stands for"
            " any text. Samples that differ in no label are added up."
        ),
    )
    binary_bytes: int = field(
        default=int(_BINARY_BYTES.default),
        gt=0,
        le=_MOST,
        description=(
            "The largest upload of a program, as it is sent and with its sections uncompressed, in bytes."
            " Beyond it, the answer is 413 or 400."
        ),
    )
    binaries_megabytes: float = _BINARY_BYTES.follower(
        2048.0, "MiB of disk for the programs of a service, of which the newest always stays", gt=0, le=inf
    )
    shared_megabytes: float = _BINARY_BYTES.follower(
        10_240.0, "MiB of disk for programs that name the functions of every service", gt=0, le=inf
    )
    copies_megabytes: float = _BINARY_BYTES.follower(
        2048.0,
        "MiB of disk for tables of programs' symbols and, with a bucket, copies of programs",
        gt=0,
        le=inf,
    )
    incoming_megabytes: float = _BINARY_BYTES.follower(
        1024.0, "MiB of disk for all bodies that are arriving", gt=0, le=inf
    )
    binaries_kept: int = field(
        default=50,
        ge=0,
        le=10_000,
        description=(
            "How many uploaded programs a service keeps, for the names of functions and the format llvm. The"
            " oldest uploads go first. 0 takes and uses none. Needs the extra `binary` of the package; for"
            " the format llvm, llvm-symbolizer, too."
        ),
    )
    binary_days: float = field(
        default=inf,
        gt=0,
        description="Delete a program when its last upload is older than this, in days; inf for never.",
    )
    debuginfod_urls: DebuginfodURLs = field(
        default="",
        description=(
            "The URLs of debuginfod servers, separated by blanks, that are asked in this order for programs"
            " whose functions have no names in profiles. They learn build ids. Empty for none."
        ),
    )
    grpc_address: OptionalAddress = field(
        default="",
        description=(
            "The address to listen on for OTLP and Parca over gRPC, such as 127.0.0.1:4317: host:port, or"
            " :port for every interface. Port 0 picks a free one. Empty for none."
        ),
    )
    workers: int = field(
        default_factory=default_workers,
        gt=0,
        description=(
            "The number of worker processes, which decode and merge profiles. Default: the number of"
            " cores, at least 2."
        ),
    )
    memory_megabytes: int | None = field(
        default=None,
        ge=64,
        le=1 << 30,
        description=(
            "How much memory the collector may use, in MiB: it decides what is kept and how large a task may"
            " be. Without it, that is the memory of the machine or its control group, of which 1024 MiB at"
            " most are for decoded profiles, 4096 MiB for a worker's tasks and 256 MiB for an answer."
        ),
    )
    rows_megabytes: int = follows(
        "memory_megabytes",
        rows_megabytes,
        "MiB for decoded profiles between merges, of all workers together: a quarter",
        gt=0,
        le=1 << 30,
    )
    worker_megabytes: int = follows(
        "memory_megabytes",
        worker_megabytes,
        "MiB for a task of each worker: its share of four fifths, less what is kept",
        gt=0,
        le=1 << 30,
    )
    pages_megabytes: float = follows(
        "memory_megabytes",
        pages_megabytes,
        "MiB for cached answers of the pages, 0 for none",
        default="16",
        ge=0,
        le=_MOST >> 20,
    )
    body_memory_bytes: int = follows(
        "memory_megabytes",
        body_memory_bytes,
        "bytes of arriving bodies in memory, beyond which they go to disk, and a quarter as much for"
        " unfinished heads of requests",
        default=f"{64 << 20}",
        gt=0,
        le=_MOST,
    )
    max_output_bytes: int = field(
        default_factory=max_output_bytes,
        gt=0,
        le=_MOST,
        description=(
            "The largest answer made from profiles, such as a merge in any format, a table or a"
            " report, in bytes. A larger one is refused before it is made. A worker may use three"
            " times this much memory for one answer. Default: 256 MiB, or a third of"
            " what PGOF_MEMORY_MEGABYTES leaves for a worker's task if that is less."
        ),
    )
    task_seconds: float = field(
        default=_TASK_SECONDS.default,
        gt=0,
        le=86_400,
        description=(
            "How long a task may run in a worker, and how long it may wait for one, in seconds. A"
            " worker that takes longer is replaced, and the request is refused."
        ),
    )
    binary_seconds: float = _TASK_SECONDS.follower(
        60.0, "seconds that llvm-symbolizer may read an uploaded program for one merge", gt=0, le=86_400
    )
    body_cpu_seconds: float = _TASK_SECONDS.follower(
        5.0, "CPU seconds to read a submitted body, for each MiB as it was sent", gt=0, le=86_400
    )
    pattern_seconds: float = _TASK_SECONDS.follower(
        5.0, "CPU seconds of a request's patterns for the names in one service's profiles", gt=0, le=86_400
    )
    bulk: Bulk = field(
        default=OWN_WORKERS,
        description=(
            "What reads very many profiles at once: `workers`, for the workers of this server, or the"
            " Dask cluster of the scheduler at dask://host:port, or at dask+tls://host:port with Dask's"
            " own settings for TLS. Needs the extra `dask` of the package."
        ),
    )
    rollup_days: float = field(
        default=inf,
        gt=0,
        description=(
            "Combine the profiles of one series and day into one when the day is this old, in days;"
            " inf for never."
        ),
    )
    rollup_labels: str = field(
        default="*", description="The labels that roll-ups keep, comma-separated; * for all."
    )
    keep_days: float = field(
        default=inf,
        gt=0,
        description="Delete single profiles that are older than this, in days; inf for never.",
    )
    keep_megabytes: float = field(
        default=inf,
        gt=0,
        description=(
            "Delete the oldest single profiles while all of them take more than this, in MiB; inf for never."
        ),
    )
    keep_combined_days: float = field(
        default=inf, gt=0, description="Like `PGOF_KEEP_DAYS`, for combined and rolled-up profiles."
    )
    keep_combined_megabytes: float = field(
        default=inf, gt=0, description="Like `PGOF_KEEP_MEGABYTES`, for combined and rolled-up profiles."
    )
    retention_share: float = field(
        default=0.25,
        gt=0,
        le=1,
        description=(
            "After the clock moved ahead by more than a day, retention deletes no more than this share of the"
            " single profiles, of the combined ones and of the programs at once because of their age; 1 for"
            " any number."
        ),
    )
    upkeep_seconds: float = field(
        default=_UPKEEP_SECONDS.default,
        gt=0,
        description="The pause between two runs of retention and roll-ups, in seconds.",
    )
    join_seconds: float = _UPKEEP_SECONDS.follower(
        60.0,
        "seconds between two searches for Go profiles, which give start lines to eBPF profiles",
        gt=0,
        le=inf,
    )
    release_check_seconds: float = _UPKEEP_SECONDS.follower(
        60.0, "seconds between two comparisons of a release with the merge, at least", ge=0, le=inf
    )
    quota_profiles: float = field(
        default=inf,
        gt=0,
        description="How many profiles of one service to accept per day (UTC); inf for any number.",
    )
    quota_megabytes: float = field(
        default=inf, gt=0, description="How much one service may store, in MiB; inf for any amount."
    )
    webhook_url: URL | None = field(
        default=None,
        description="The URL to post an event to for each stored profile. Without it there are no events.",
    )
    webhook_secret_file: Path = field(
        default=Path("/secret/webhook_secret"),
        description=(
            "The file of secrets that sign events: `whsec_…`, one per line. It is read at each attempt."
        ),
    )
    max_connections: int = field(
        default=int(_CONNECTIONS.default),
        gt=0,
        le=_MOST,
        description=(
            "The largest number of open connections. Beyond it, a connection that waits for a request"
            " is closed to make room; if there is none, the answer is 503. The limit is lower if the"
            " process can't have as many file descriptors."
        ),
    )
    grpc_connections: int = _CONNECTIONS.follower(1024, "connections to the port of gRPC", gt=0, le=_MOST)
    grpc_calls: int = _CONNECTIONS.follower(
        16, "calls of gRPC at once, of which half may be uploads of programs", gt=0, le=10_000
    )
    live_streams: int = _CONNECTIONS.follower(100, "open pages that are told of new profiles", ge=0, le=_MOST)
    max_connections_per_address: float = field(
        default=inf,
        gt=0,
        description=(
            "The largest number of open connections from one address (for IPv6, one /64). Beyond it,"
            " the answer is 503. Use inf, for any number, behind a proxy, where all connections have"
            " one address."
        ),
    )
    body_timeout: float = field(
        default=_BODY_TIMEOUT.default,
        gt=0,
        description=("How long a request body may take to arrive, in seconds. Beyond it, the answer is 408."),
    )
    head_timeout: float = _BODY_TIMEOUT.follower(
        10.0, "seconds until the first line and headers of a request have arrived", gt=0, le=inf
    )
    idle_timeout: float = _BODY_TIMEOUT.follower(
        75.0, "seconds between two requests on a connection", gt=0, le=inf
    )
    answer_timeout: float = _BODY_TIMEOUT.follower(
        60.0, "seconds in which a client may read nothing of its answer", gt=0, le=inf
    )
    capture_seconds: float = _BODY_TIMEOUT.follower(
        60.0, "seconds that a target of PGOF_CAPTURE_TARGETS may take for a profile", gt=0, le=3600
    )
    trace_keys_file: Path | None = field(
        default=None,
        description=(
            "The file of keys whose holders may have their requests traced, one per line. It is read again"
            " when it changes. Without it, no signature is accepted."
        ),
    )
    trace_rate: float = field(
        default=0,
        ge=0,
        le=1,
        description="The share of other requests to trace, drawn at random, from 0 to 1.",
    )
    trace_megabytes: float = field(
        default=64,
        ge=0,
        description=(
            "Delete the oldest traces while all of them take more than this, in MiB; 0 for no traces in the"
            " data folder at all."
        ),
    )
    trace_otlp_url: URL | None = field(
        default=None,
        description=(
            "Where to send traces, too: a URL that takes OTLP over HTTP, such as"
            " http://127.0.0.1:4318/v1/traces. Needs the extra `tracing` of the package."
        ),
    )
    unknown_settings: Literal["refuse", "warn"] = field(
        default="refuse",
        description=(
            "What an environment variable does that begins with PGOF_ and is no setting, such as a misspelled"
            " one: refuse, so that no command runs, or warn, such as for going back to an older version."
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info",
        description=(
            "The lowest level to log: debug, info, warning or error. Each request is logged at info."
        ),
    )
