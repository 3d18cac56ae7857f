"""Every setting, in one table: name, default, help. Read once, from the environment, at start."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from pprof_merge import Budget, Limits
from pydantic import AfterValidator, Field, HttpUrl, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from pgo_collector.errors import SettingsInvalid
from pgo_collector.model.series import SERVICE_PATTERN
from pgo_collector.resources import memory_bytes

PREFIX = "PGOF_"
# Neither the catalog nor zlib takes a number that is larger than 63 bits.
_MOST = 1 << 62
# What the server and two workers take when nothing is stored: docs/capacity.md.
_IDLE_MEGABYTES = 160


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; the host is empty for `:port` and bare of brackets for `[::1]:port`."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("must be host:port, for example 127.0.0.1:8080, :8080 or [::1]:8080")
    if ":" in host and not bracketed:
        raise ValueError("an IPv6 address needs brackets, as in [::1]:8080")
    return host[1:-1] if bracketed else host, int(port)


def _check_address(address: str) -> str:
    split_address(address)
    return address


def default_workers() -> int:
    """As many as there are cores, and two on one core: a merge must not hold up the submits."""
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def default_rows_megabytes() -> int:
    """A quarter of the memory that there is, and 1 GiB at most."""
    return max(1, min(1024, (memory_bytes() >> 20) // 4))


def default_worker_megabytes() -> int:
    """What is left for each worker of four fifths of the memory, and from 64 MiB to 4 GiB.

    Gone are what the processes take without a task, and the default of all rows.
    """
    total = (memory_bytes() >> 20) * 4 // 5
    left = total - _IDLE_MEGABYTES - default_rows_megabytes()
    return min(max(left // default_workers(), 64), 4096)


def default_output_bytes() -> int:
    """256 MiB, or as much as a worker has room for where the machine is small."""
    return min(256 << 20, (default_worker_megabytes() << 20) // 3)


class Settings(BaseSettings):
    """The table. A setting's variable is its name in upper case after `PGOF_`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, hide_input_in_errors=True)

    bind_address: Annotated[str, AfterValidator(_check_address)] = Field(
        default="127.0.0.1:8080",
        description="Where to listen: host:port, :port for every interface, port 0 for any free one.",
    )
    directory: Path = Field(
        default=Path("./profiles"),
        description="The data folder; made if it is missing. One server at a time uses it.",
    )
    submit_auth_keys_file: Path = Field(
        default=Path("/secret/submit_keys"),
        description="Keys that may submit, one a line. Read again when it changes.",
    )
    merge_auth_keys_file: Path = Field(
        default=Path("/secret/merge_keys"),
        description="Keys that may merge and combine, one a line. Read again when it changes.",
    )
    default_service: str = Field(
        default="default",
        pattern=rf"^{SERVICE_PATTERN}$",
        description="The service of profiles from clients that name none.",
    )
    profefe_open: bool = Field(
        default=False,
        description="Whether profefe's API, /api/0, takes requests without a key. For trusted networks.",
    )
    metrics_auth_keys_file: Path | None = Field(
        default=None,
        description="Keys that may scrape /metrics, one a line. Read again when it changes.",
    )
    metrics_open: bool = Field(
        default=False, description="Whether /metrics takes requests without a key. For trusted networks."
    )
    session_hours: float = Field(
        default=12,
        gt=0,
        le=8760,
        description="How long who signs in to the pages at `/ui` stays so, in hours.",
    )
    sign_in_attempts: float = Field(
        default=10,
        gt=0,
        description="After how many wrong keys an address that signs in at `/ui` has to wait; inf for never.",
    )
    sign_in_wait: float = Field(
        default=300,
        ge=1,
        le=86400,
        description="How long that wait gets at most, in seconds; it begins with 1 and doubles.",
    )
    rules_dir: Path = Field(
        default=Path("./rules"),
        description="The folder of rules, `<service>.rules` for each service that has any.",
    )
    release_overlap: float = Field(
        default=0.85,
        ge=0,
        le=1,
        description="A release is replaced when its overlap with the merge falls below this; 0 for never.",
    )
    release_days: float = Field(
        default=30,
        ge=0,
        description="A release is replaced when it is older than this, in days; inf for never.",
    )
    release_check_seconds: float = Field(
        default=60,
        ge=0,
        description="How long the merge isn't compared again with the release after it was, in seconds.",
    )
    releases_kept: int = Field(
        default=20, gt=0, description="How many releases are kept, the newest; the current one always is."
    )
    max_compressed_bytes: int = Field(
        default=8 << 20, gt=0, le=_MOST, description="The largest gzip body that a submit may have."
    )
    max_inflated_bytes: int = Field(
        default=8 << 20,
        gt=0,
        le=_MOST,
        description="The largest protobuf, bare or inflated; the largest list of symbols.",
    )
    max_name_bytes: int = Field(
        default=32 << 10,
        gt=0,
        le=_MOST,
        description="The longest name, or other text, that a submitted profile may have in it.",
    )
    max_output_bytes: int = Field(
        default_factory=default_output_bytes,
        gt=0,
        le=_MOST,
        description=(
            "The largest answer that is made of profiles, as a merge in some format, a table or a report, in"
            " bytes. What is larger is refused before it is made. A worker may take three times that for one."
            " Default: 256 MiB, or a third of the default of `PGOF_WORKER_MEGABYTES` if that is less."
        ),
    )
    workers: int = Field(
        default_factory=default_workers,
        gt=0,
        description="Processes that decode and merge. Default: the number of cores, at least 2.",
    )
    rows_megabytes: int = Field(
        default_factory=default_rows_megabytes,
        gt=0,
        le=1 << 30,
        description=(
            "How much memory the workers may use, together, between merges to keep what they have decoded, in"
            " MiB. What it bounds, and what not: docs/capacity.md. Default: 1024, or a quarter of the memory"
            " if that is less."
        ),
    )
    worker_megabytes: int = Field(
        default_factory=default_worker_megabytes,
        gt=0,
        le=1 << 30,
        description=(
            "How much memory one worker may use for a task, besides its rows, in MiB; a task that needs more"
            " is refused. Default: what four fifths of the memory leave for each worker, from 64 to 4096."
        ),
    )
    task_seconds: float = Field(
        default=600,
        gt=0,
        le=86_400,
        description=(
            "How long a worker may take for one task, and a task may wait for its turn, in seconds; a worker"
            " that takes longer is replaced, and the request refused."
        ),
    )
    min_free_megabytes: float = Field(
        default=64,
        ge=0,
        description="`/readyz` fails while less is free on the data folder's disk, in MiB.",
    )
    merges_kept: int = Field(
        default=500,
        gt=0,
        le=_MOST,
        description="How many merges are kept on disk, in all their forms; the newest are.",
    )
    rollup_days: float = Field(
        default=inf,
        gt=0,
        description="Older profiles of one series and day become one, in days; inf for never.",
    )
    rollup_labels: str = Field(
        default="*", description="The labels that stay in roll-ups, with commas between; * for all."
    )
    keep_days: float = Field(
        default=inf, gt=0, description="Profiles that are older are deleted, in days; inf for never."
    )
    keep_megabytes: float = Field(
        default=inf, gt=0, description="The oldest profiles are deleted while all take more, in MiB."
    )
    keep_combined_days: float = Field(
        default=inf, gt=0, description="As `PGOF_KEEP_DAYS`, for combined and rolled-up profiles."
    )
    keep_combined_megabytes: float = Field(
        default=inf, gt=0, description="As `PGOF_KEEP_MEGABYTES`, for combined and rolled-up profiles."
    )
    upkeep_seconds: float = Field(
        default=3600, gt=0, description="The pause after each run of roll-ups and deletions, in seconds."
    )
    quota_profiles: float = Field(
        default=inf, gt=0, description="How many profiles of one service are taken a day (UTC); inf for any."
    )
    quota_megabytes: float = Field(
        default=inf, gt=0, description="How much of one service is stored, in MiB; inf for any."
    )
    webhook_url: HttpUrl | None = Field(
        default=None, description="Where an event is posted for each profile that is stored."
    )
    webhook_secret_file: Path = Field(
        default=Path("/secret/webhook_secret"),
        description="What these events are signed with: `whsec_…`, one secret a line. Read at each attempt.",
    )
    webhook_timeout: float = Field(
        default=15, gt=0, description="How long the receiver of an event may take to answer, in seconds."
    )
    webhook_days: float = Field(
        default=3, gt=0, description="How long an event is tried again before it is dropped, in days."
    )
    webhook_events_kept: int = Field(
        default=10_000, gt=0, le=_MOST, description="How many events wait at most; the oldest are dropped."
    )
    max_header_bytes: int = Field(
        default=64 << 10,
        gt=0,
        le=1 << 30,
        description="How large all headers of one request may be, in bytes; or its trailers; 431 beyond.",
    )
    max_headers: int = Field(
        default=100, gt=0, le=_MOST, description="How many headers one request may have; 431 beyond."
    )
    max_url_bytes: int = Field(
        default=16 << 10,
        gt=0,
        le=_MOST,
        description="How long the path and query of a URL may be, in bytes; 414 beyond.",
    )
    head_timeout: float = Field(
        default=10,
        gt=0,
        description="How long a request's line and headers may take to arrive, in seconds; 408 beyond.",
    )
    idle_timeout: float = Field(
        default=75,
        gt=0,
        description="How long a connection stays open between two requests, in seconds.",
    )
    answer_timeout: float = Field(
        default=60,
        gt=0,
        description="How long a client may read nothing of its answer before it is cut off, in seconds.",
    )
    max_connections: int = Field(
        default=4096,
        gt=0,
        le=_MOST,
        description=(
            "How many connections there may be; beyond, those that wait make way, and then 503. Fewer if the"
            " process can't have as many file descriptors."
        ),
    )
    max_connections_per_address: float = Field(
        default=inf,
        gt=0,
        description=(
            "How many of them may come from one address (IPv6: from one /64), 503 beyond; inf for any number,"
            " as behind a proxy, whose address all have."
        ),
    )
    body_memory_bytes: int = Field(
        default=64 << 20,
        gt=0,
        le=_MOST,
        description=(
            "How much memory the bodies that are arriving may take, together, in bytes; beyond, they are"
            " written to disk piece by piece."
        ),
    )
    incoming_megabytes: float = Field(
        default=1024,
        gt=0,
        description=(
            "How much disk the bodies that are arriving may take, together, in MiB; one that needs more is"
            " refused with 503."
        ),
    )
    body_timeout: float = Field(
        default=60, gt=0, description="How long one request body may take to arrive, in seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is logged; the line of each request is info."
    )

    @property
    def limits(self) -> Limits:
        """What one submitted profile may be."""
        return Limits(
            compressed_bytes=self.max_compressed_bytes,
            inflated_bytes=self.max_inflated_bytes,
            name_bytes=self.max_name_bytes,
        )

    @property
    def output_budget(self) -> Budget:
        """How large an answer that is made of profiles may be."""
        return Budget(self.max_output_bytes)

    @property
    def has_metrics(self) -> bool:
        """Whether anybody can scrape them."""
        return self.metrics_open or self.metrics_auth_keys_file is not None

    @property
    def labels_of_rollups(self) -> frozenset[str]:
        """The labels that stay in roll-ups; none are named where all do, as with an empty variable."""
        keys = [key.strip() for key in self.rollup_labels.split(",")]
        return frozenset() if "*" in keys else frozenset(map(unquote, filter(None, keys)))

    @property
    def largest_body(self) -> int:
        """How many bytes a submit may have, whichever way it is encoded."""
        return max(self.max_compressed_bytes, self.max_inflated_bytes)


def read_settings() -> Settings:
    """The settings of this process's environment. Raises SettingsInvalid, which names the variables."""
    try:
        return Settings()
    except ValidationError as error:
        faults = [f"{PREFIX}{fault['loc'][0]}".upper() + f": {fault['msg']}" for fault in error.errors()]
        raise SettingsInvalid("; ".join(faults)) from None
