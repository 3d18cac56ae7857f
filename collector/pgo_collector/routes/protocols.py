"""The protocols besides that of `/v1`: one row each, from which the application, its errors and its metrics
are made.

A new protocol is a folder and a row here: its name, its dialects (its paths, how it answers a failure there,
and which of its routes store profiles), and a function that returns its routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pgo_collector.engine.start_lines import Tables
from pgo_collector.http.keys import KeyFile
from pgo_collector.http.problems import Dialect
from pgo_collector.http.routing import Routes
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.queries.grafana.profiles import Profiles
from pgo_collector.queries.grafana.reading import Reading
from pgo_collector.routes.autopgo import AUTOPGO, AutopgoParts, autopgo_routes
from pgo_collector.routes.datadog.api import DATADOG, INFO, datadog_routes
from pgo_collector.routes.otlp.api import OTLP, otlp_routes
from pgo_collector.routes.parca.api import PARCA, parca_routes
from pgo_collector.routes.profefe.api import profefe_routes
from pgo_collector.routes.profefe.envelope import PROFEFE
from pgo_collector.routes.push.connect import Messages
from pgo_collector.routes.push.uploads import AgentUploads
from pgo_collector.routes.pyroscope.api import CONNECT, OF_INGEST, READY, pyroscope_routes, ready_route
from pgo_collector.routes.pyroscope.debuginfo import debuginfo_routes
from pgo_collector.routes.pyroscope.querier import querier_routes
from pgo_collector.routes.pyroscope.render import render_routes
from pgo_collector.routes.submit import SUBMIT
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.readiness import Readiness
from pgo_collector.submits.submits import Submits


class Parts(NamedTuple):
    """The parts of the collector that the routes of protocols use."""

    settings: Settings
    submit_keys: KeyFile
    merge_keys: KeyFile
    submits: Submits
    merges: Merges
    rules: RulesFolder
    readiness: Readiness
    start_lines: Tables
    profiles: Profiles
    reading: Reading
    messages: Messages
    binaries: Binaries
    uploads: AgentUploads


class Protocol(NamedTuple):
    """A protocol: its dialects, a function that returns its routes, and paths that no dialect has."""

    name: str
    dialects: tuple[Dialect, ...]
    routes: Callable[[Parts], Iterator[Routes]]
    others: tuple[str, ...] = ()

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return the beginnings of paths that are the protocol's, sorted."""
        return tuple(sorted(prefix for dialect in self.dialects for prefix in dialect.prefixes))

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the whole paths that are the protocol's besides those of its prefixes, sorted."""
        own = {path for dialect in self.dialects for path in dialect.others}
        return tuple(sorted(own | {*self.others}))

    def has_path(self, path: str) -> bool:
        """Return whether a path is the protocol's."""
        return path.startswith(self.prefixes) or path in self.paths


def _profefe(parts: Parts) -> Iterator[Routes]:
    yield from profefe_routes(
        parts.submits,
        parts.merges,
        parts.submit_keys,
        parts.merge_keys,
        is_open=parts.settings.profefe_open,
    )


def _pyroscope(parts: Parts) -> Iterator[Routes]:
    yield ready_route(parts.readiness)
    yield pyroscope_routes(parts.submits, parts.submit_keys, parts.settings.push_profiles)
    yield querier_routes(parts.profiles, parts.reading, parts.messages, parts.merge_keys)
    yield render_routes(parts.reading, parts.merge_keys)
    yield from debuginfo_routes(
        parts.uploads, parts.binaries, parts.messages, parts.submit_keys, parts.merge_keys
    )


def _otlp(parts: Parts) -> Iterator[Routes]:
    yield otlp_routes(parts.submits, parts.submit_keys, parts.settings, parts.start_lines)


def _parca(parts: Parts) -> Iterator[Routes]:
    yield parca_routes(parts.submits, parts.uploads, parts.messages, parts.submit_keys, parts.settings)


def _datadog(parts: Parts) -> Iterator[Routes]:
    settings = parts.settings
    yield datadog_routes(
        parts.submits, parts.submit_keys, settings.push_profiles, is_open=settings.datadog_open
    )


def _autopgo(parts: Parts) -> Iterator[Routes]:
    used = AutopgoParts(parts.submits, parts.merges, parts.rules, parts.readiness)
    yield autopgo_routes(used, parts.submit_keys, parts.merge_keys, is_open=parts.settings.autopgo_open)


PROTOCOLS = (
    Protocol("profefe", (PROFEFE,), _profefe),
    Protocol("pyroscope", (CONNECT, OF_INGEST), _pyroscope, others=(READY,)),
    Protocol("parca", (PARCA,), _parca),
    Protocol("otlp", (OTLP,), _otlp),
    Protocol("datadog", (DATADOG,), _datadog, others=(INFO,)),
    Protocol("autopgo", (AUTOPGO,), _autopgo),
)
DIALECTS = tuple(dialect for protocol in PROTOCOLS for dialect in protocol.dialects)
# The templates of the routes that store profiles, in every protocol.
SUBMITS = frozenset({SUBMIT, *(template for dialect in DIALECTS for template in dialect.submits)})
