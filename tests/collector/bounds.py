"""The bounds of workers in tests that start them without a server."""

from __future__ import annotations

from pgo_collector.workers.process import WorkerBounds

BOUNDS = WorkerBounds(
    rows_bytes=1 << 29, task_bytes=1 << 30, task_seconds=120, pattern_seconds=5, body_seconds=60
)
