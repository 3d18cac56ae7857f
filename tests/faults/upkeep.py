"""Upkeep as settings for the collector and as steps of the model, and the days that both are about."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.faults.blob_files import BlobFile
from tests.faults.model import Model
from tests.faults.stacks import DAY

# Profiles are taken about noon, and bounds of age are at six: steps may take hours, whenever they begin.
TODAY: Final = time.time_ns() // DAY * DAY
NOON: Final = TODAY + DAY // 2
SIX: Final = TODAY + DAY // 4


class Upkeep(NamedTuple):
    """The bounds of retention in days, None for none, and the label that a roll-up keeps, all if it is empty.

    The bound by size is the size of the profiles from a day on.
    """

    rolled_up: int | None
    kept: str
    single: int | None
    combined: int | None
    single_by_size: int | None
    combined_by_size: int | None

    def apply(self, model: Model) -> None:
        for bound in filter(None, (self.single, self.single_by_size)):
            model.expire(six(bound), combined=False)
        for bound in filter(None, (self.combined, self.combined_by_size)):
            model.expire(six(bound), combined=True)
        if self.rolled_up is not None:
            model.roll_up(six(self.rolled_up), self.kept)

    def environment(self, stored: Sequence[BlobFile]) -> dict[str, str]:
        """Return these bounds as settings, for the blobs that are stored now."""
        now = time.time_ns()
        days = {"ROLLUP": self.rolled_up, "KEEP": self.single, "KEEP_COMBINED": self.combined}
        settings = {
            f"PGOF_{name}_DAYS": f"{(now - six(bound)) / DAY}"
            for name, bound in days.items()
            if bound is not None
        }
        sizes = {"KEEP": (False, self.single_by_size), "KEEP_COMBINED": (True, self.combined_by_size)}
        for name, (is_combined, bound) in sizes.items():
            if bound is not None:
                kept = sum(
                    blob.size for blob in stored if blob.is_combined == is_combined and blob.end >= six(bound)
                )
                settings[f"PGOF_{name}_MEGABYTES"] = f"{max(kept, 1) / (1 << 20)!r}"
        # After a reindex, the newest profile may be older than a day: then the clock isn't trusted.
        return {"PGOF_ROLLUP_LABELS": self.kept, "PGOF_RETENTION_SHARE": "1", **settings}

    @property
    def repeatable(self) -> Upkeep:
        """Return this upkeep without deletes of what it rolled up, so that a second run changes nothing."""
        return self if self.rolled_up is None else self._replace(combined=None, combined_by_size=None)


def ago(days: int | None) -> int | None:
    """Return noon, `days` ago."""
    return None if days is None else NOON - days * DAY


def six(days: int) -> int:
    """Return six in the morning, `days` ago."""
    return SIX - days * DAY
