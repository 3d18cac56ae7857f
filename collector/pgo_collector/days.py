"""Days in UTC, by which blobs are filed, rolled up, kept and counted."""

from __future__ import annotations

DAY_NANOS = 86_400 * 10**9
