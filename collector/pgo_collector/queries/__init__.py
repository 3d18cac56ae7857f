"""Queries: what a service, or the whole fleet, spends its time on. The API and the pages show the results.

`fleet.Fleet` runs a query on the workers, service by service. `fleet_tables`, `flames`, `functions`,
`timelines` and `histograms` combine the results, and `overviews` has the whole fleet at one look; `activity`
asks the catalog alone. `tops` and `diffs` turn tables into answers, `listings` turns catalog rows into
answers, and `answers` has the JSON models; `unnamed` says which programs' functions have no names. `kept`
keeps answers for the pages, `traces` reads the trace store, and `meanwhile` finds the profiles that were
being taken during a trace. `grafana/` answers the calls of Grafana's Pyroscope data source.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pgo_collector.on_first_use import OnFirstUse

_ANSWERS = "pgo_collector.queries.answers"
if TYPE_CHECKING:
    from pgo_collector.queries import answers
else:
    # They need pydantic, and most collectors are asked no question in their first minute.
    answers = OnFirstUse(_ANSWERS)


async def import_answers(_: object) -> None:
    """Import the models of answers in a thread, unless they are there. It is a check of routes."""
    if _ANSWERS not in sys.modules:
        await asyncio.to_thread(import_module, _ANSWERS)
