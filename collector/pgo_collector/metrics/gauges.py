"""Gauges: values that each scrape reads from the parts of a running server."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from pgo_collector.background import BackgroundTasks
from pgo_collector.catalog.inventory import Inventory, Totals
from pgo_collector.catalog.outbox import Outbox
from pgo_collector.merges.warming import Warming
from pgo_collector.metrics.function_families import function_families
from pgo_collector.on_first_use import OnFirstUse
from pgo_collector.store.binaries import stored_sizes
from pgo_collector.store.store import Store
from pgo_collector.submits.clocks import Clocks
from pgo_collector.submits.function_metrics import FunctionMetrics
from pgo_collector.traces.tracing import NO_TRACING, Tracing
from pgo_collector.upkeep.upkeep import Upkeep
from pgo_collector.workers.bulk import BulkProgress
from pgo_collector.workers.pool import Workers

if TYPE_CHECKING:
    from prometheus_client import core
    from prometheus_client.registry import Collector
else:
    core = OnFirstUse("prometheus_client.core")
    Collector = object

_PREFIX = "pgo_collector"
# The totals of stored profiles are read from the catalog at most this often, since it sums all its rows; and
# programs are listed, which may be in a bucket.
_STORED_SECONDS = 60


class Gauges(Collector):
    """All gauges. Collecting them blocks on the catalog and the disk."""

    def __init__(
        self,
        store: Store,
        *,
        workers: Workers,
        bulk: BulkProgress,
        warming: Warming,
        upkeep: Upkeep,
        background: BackgroundTasks,
        clocks: Clocks,
        functions: FunctionMetrics,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._store = store
        self._workers = workers
        self._bulk = bulk
        self._tracing = tracing
        self._warming = warming
        self._upkeep = upkeep
        self._background = background
        self._clocks = clocks
        self._functions = functions
        self._inventory = Inventory(store.catalog)
        self._lock = Lock()
        self._outbox = Outbox(store.catalog)
        self._totals: dict[str, Totals] = {}
        self._read_at = self._sized_at = -float("inf")
        self._sizes: list[int] = []

    def collect(self) -> Iterator[core.Metric]:
        """Yield the current values; the totals of stored profiles and programs may be a minute old."""
        workers, warming, upkeep = self._workers, self._warming, self._upkeep
        yield _gauge("workers", "Worker processes.", workers.count)
        yield _gauge("workers_busy", "Worker processes that are running a task.", workers.busy)
        yield _gauge("tasks_waiting", "Tasks waiting for a worker process.", workers.queued)
        yield _gauge(
            "oldest_task_seconds",
            "Age of the oldest unfinished task, in seconds; 0 if there is none.",
            workers.oldest_task_seconds,
        )
        yield _gauge(
            "rows_bytes", "Memory that decoded profiles take in the workers, in bytes.", workers.rows_bytes
        )
        yield _gauge(
            "warming_profiles",
            "Stored profiles that the workers read ahead after a start, as far as known.",
            warming.total,
        )
        bulk = self._bulk
        yield _gauge(
            "bulk_profiles", "Stored profiles that a cluster is to read for this server.", bulk.total
        )
        yield _gauge("bulk_profiles_read", "How many of these the cluster has read.", bulk.read)
        yield _gauge("warmed_profiles", "How many of the warming profiles have been read.", warming.read)
        yield _gauge(
            "upkeep_done_timestamp_seconds",
            "When the last run of roll-ups and retention succeeded; the time of the start before the first.",
            upkeep.done_at,
        )
        yield _gauge(
            "upkeep_pause_seconds",
            "Pause between two runs of roll-ups and retention: PGOF_UPKEEP_SECONDS.",
            upkeep.pause,
        )
        yield from self._replacements()
        yield from self._background_tasks()
        yield self._clocks_off()
        yield from self._measured_functions()
        yield from self._traces()
        yield from self._events()
        yield from self._disk()
        yield from self._stored()
        yield from self._binaries()

    def _replacements(self) -> Iterator[core.Metric]:
        replaced = core.CounterMetricFamily(
            f"{_PREFIX}_worker_replacements",
            "Worker processes replaced, by reason: they died, hung, took too long or too much memory,"
            " or nobody waited for their task any more.",
            labels=["reason"],
        )
        for reason, count in self._workers.replaced.items():
            replaced.add_metric([reason], count)
        yield replaced

    def _background_tasks(self) -> Iterator[core.Metric]:
        failing = _gauge(
            "background_task_failing",
            "Whether a background task has failed and waits to be restarted: 1 or 0.",
            labels=["task"],
        )
        restarts = core.CounterMetricFamily(
            f"{_PREFIX}_background_task_restarts",
            "Restarts of a background task after a failure.",
            labels=["task"],
        )
        for task, count in self._background.restarts.items():
            failing.add_metric([task], task in self._background.failing)
            restarts.add_metric([task], count)
        yield failing
        yield restarts

    def _clocks_off(self) -> core.GaugeMetricFamily:
        off = _gauge(
            "clock_off_seconds",
            "By how many seconds the clock of a sender is ahead, negative if behind. The 20 that sent such a"
            " profile last, within an hour.",
            labels=["service", "profiled_instance"],  # Prometheus has an `instance` of its own
        )
        for sender, seconds in self._clocks.seconds_off().items():
            off.add_metric([*sender], seconds)
        return off

    def _measured_functions(self) -> Iterator[core.Metric]:
        yield _gauge(
            "function_rules_outdated",
            "Whether PGOF_FUNCTION_METRICS_FILE can't be used, so that the rules before hold: 1 or 0.",
            self._functions.is_outdated,
        )
        failed = core.CounterMetricFamily(
            f"{_PREFIX}_function_metrics_failed",
            "Stored profiles that are missing in a metric of functions, by reason: no sample type is a time,"
            " values are negative or too large, there are too many new names, or a fault.",
            labels=["reason"],
        )
        for reason, count in self._functions.failed.items():
            failed.add_metric([reason], count)
        yield failed
        yield from function_families(self._functions)

    def _traces(self) -> Iterator[core.Metric]:
        requests = core.CounterMetricFamily(
            f"{_PREFIX}_traced_requests",
            "Requests that were traced (signed, sampled), reports on them, and bad signatures, by outcome.",
            labels=["outcome"],
        )
        for outcome, count in self._tracing.requests.items():
            requests.add_metric([outcome], count)
        traces = core.CounterMetricFamily(
            f"{_PREFIX}_traces",
            "Traces that were kept or dropped, by where they went.",
            labels=["outlet", "outcome"],
        )
        for outlet in self._tracing.outlets:
            traces.add_metric([outlet.name, "kept"], outlet.kept)
            traces.add_metric([outlet.name, "dropped"], outlet.dropped)
        yield requests
        yield traces

    def _events(self) -> Iterator[core.GaugeMetricFamily]:
        with suppress(SQLAlchemyError):
            events, oldest = self._outbox.backlog()
            age = 0.0 if oldest is None else max(time.time() - oldest / 10**9, 0.0)
            yield _gauge("events_waiting", "Events waiting to be delivered.", events)
            yield _gauge(
                "oldest_event_seconds",
                "How long the oldest waiting event has waited, in seconds; 0 if there is none.",
                age,
            )

    def _disk(self) -> Iterator[core.GaugeMetricFamily]:
        with suppress(OSError):
            disk = shutil.disk_usage(self._store.folder.path)
            yield _gauge("disk_bytes", "Size of the data folder's file system, in bytes.", disk.total)
            yield _gauge(
                "disk_free_bytes", "Free space on the data folder's file system, in bytes.", disk.free
            )

    def _stored(self) -> Iterator[core.GaugeMetricFamily]:
        with self._lock, suppress(SQLAlchemyError):
            if time.monotonic() - self._read_at > _STORED_SECONDS:
                self._totals = self._inventory.totals()
                self._read_at = time.monotonic()
        profiles = _gauge("stored_profiles", "Stored profiles, by kind: single or combined.", labels=["kind"])
        size = _gauge(
            "stored_bytes", "Size of stored profiles on disk, by kind: single or combined.", labels=["kind"]
        )
        for kind, totals in self._totals.items():
            profiles.add_metric([kind], totals.profiles)
            size.add_metric([kind], totals.size)
        yield profiles
        yield size

    def _binaries(self) -> Iterator[core.GaugeMetricFamily]:
        if time.monotonic() - self._sized_at > _STORED_SECONDS:
            self._sized_at = (
                time.monotonic()
            )  # first: if the store hangs, the next scrape doesn't wait for it
            with suppress(OSError):
                self._sizes = stored_sizes(self._store.blobs.storage)
        yield _gauge("binaries", "Uploaded programs that are stored.", len(self._sizes))
        yield _gauge("binaries_bytes", "Size of the uploaded programs, in bytes.", sum(self._sizes))


def _gauge(
    name: str, meaning: str, value: float | None = None, labels: list[str] | None = None
) -> core.GaugeMetricFamily:
    return core.GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, value=value, labels=labels)
