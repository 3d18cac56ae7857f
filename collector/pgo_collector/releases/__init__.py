"""Releases: the merges that pipelines build with. A release stays current until a rebuild pays off.

`releases` decides when a new merge is released, by the bounds in `release`, and `records` has what is kept of
one; `candidates` makes and compares merges, `folder` keeps releases on disk, `renditions` has them in other
formats, and `reports` makes the report on a merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgo_collector.on_first_use import OnFirstUse

if TYPE_CHECKING:
    from pgo_collector.releases import records
else:
    # They need pydantic, and a collector without releases reads none.
    records = OnFirstUse("pgo_collector.releases.records")
