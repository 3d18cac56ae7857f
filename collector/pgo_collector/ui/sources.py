"""Sources: the parts of the collector that the pages use; the routes of the API use the same."""

from __future__ import annotations

from dataclasses import dataclass

from pgo_collector.catalog.inventory import Inventory
from pgo_collector.catalog.summaries import Summaries
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.source_links import SourceLinks
from pgo_collector.queries.activity import Activities
from pgo_collector.queries.fleet import Fleet
from pgo_collector.queries.overviews import Overviews
from pgo_collector.queries.traces import KeptTraces
from pgo_collector.releases.reports import Reports
from pgo_collector.store.binaries import Binaries
from pgo_collector.submits.body import BodyBound, BodyReader
from pgo_collector.submits.captures import Captures
from pgo_collector.submits.example import Example
from pgo_collector.submits.opened_files import OpenedFiles
from pgo_collector.ui.live_streams import LiveStreams
from pgo_collector.ui.rendering import Rendering
from pgo_collector.ui.sessions import Sessions
from pgo_collector.ui.throttle import SignInThrottle


@dataclass(frozen=True, slots=True)
class Sources:
    """Dependencies of the pages: their sources, templates, and the sessions of their visitors.

    The pages of opened files have sources of their own, of these files in place of the stored profiles.
    """

    sessions: Sessions
    throttle: SignInThrottle
    rendering: Rendering
    fleet: Fleet
    overviews: Overviews
    live: LiveStreams
    captures: Captures
    example: Example
    activities: Activities
    traces: KeptTraces
    inventory: Inventory
    summaries: Summaries
    source_links: SourceLinks
    reports: Reports
    merges: Merges
    rules: RulesFolder
    binaries: Binaries
    has_speedscope: bool
    opened: OpenedFiles
    bodies: BodyReader
    form_bound: BodyBound
    is_of_files: bool = False
