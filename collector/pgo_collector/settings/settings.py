"""The settings, with the values that are computed from several of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from pprof_merge import Budget, Limits
from pprof_merge.binary import BinaryLimits

from pgo_collector.model.debuginfod_servers import DebuginfodServer, parse_servers
from pgo_collector.settings.families import Follows
from pgo_collector.settings.table import MERGE_KEYS, SECRETS, SUBMIT_KEYS, Table
from pgo_collector.settings.texts import OWN_WORKERS, dask_address, is_loopback, split_address

PREFIX = "PGOF_"


def own_keys(directory: Path) -> dict[str, Path]:
    """Return the keys files in a data folder, by the names of their settings."""
    return {
        "submit_auth_keys_file": directory / SUBMIT_KEYS,
        "merge_auth_keys_file": directory / MERGE_KEYS,
    }


class Settings(Table):
    """The settings of a collector; none of them changes while it runs."""

    # How many settings the environment and the settings file had, and the variables that look like settings
    # and are none, each with what to do about it.
    given: int = 0
    unknown_variables: Mapping[str, str] = MappingProxyType({})

    @property
    def makes_keys(self) -> bool:
        """True if `serve` makes missing keys files: in the data folder, if only this machine connects."""
        own = own_keys(self.directory)
        return self._is_of_this_machine and all(getattr(self, name) == own[name] for name in own)

    @property
    def has_no_keys(self) -> bool:
        """True if no setting names a keys file, there is no /secret, and only this machine connects."""
        is_named = not self.given_names.isdisjoint(own_keys(self.directory))
        return self._is_of_this_machine and not is_named and not SECRETS.exists()

    @property
    def _is_of_this_machine(self) -> bool:
        addresses = filter(None, (self.bind_address, self.grpc_address))
        return all(is_loopback(split_address(address)[0]) for address in addresses)

    @property
    def dask_address(self) -> str | None:
        """Dask's address of the scheduler, None if there is no cluster."""
        return None if self.bulk == OWN_WORKERS else dask_address(self.bulk)

    @property
    def servers_of_debuginfod(self) -> tuple[DebuginfodServer, ...]:
        """The debuginfod servers, in the order in which they are asked."""
        return parse_servers(self.debuginfod_urls)

    @property
    def has_traces(self) -> bool:
        """Whether any request can be traced."""
        return self.trace_keys_file is not None or self.trace_rate > 0

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
    "memory_megabytes",
    "settings_file",
)


def _masters() -> dict[str, str]:
    """Return the master of each setting that follows one."""
    factories = {name: each.default_factory for name, each in Settings.fields.items()}
    return {name: factory.master for name, factory in factories.items() if isinstance(factory, Follows)}


MASTERS = _masters()
# The settings that people see; all others follow one of these, in whose help they are.
SHOWN = tuple(name for name in Settings.fields if name not in MASTERS)


def followers_of(master: str) -> list[str]:
    """Return a line about each setting that follows this one: its variable, its default and its meaning."""
    lines = []
    for name, field in Settings.fields.items():
        factory = field.default_factory
        if isinstance(factory, Follows) and factory.master == master:
            default = f" ({factory.default})" if factory.default else ""
            lines.append(f"`{PREFIX}{name.upper()}`{default}: {field.description}")
    return lines
