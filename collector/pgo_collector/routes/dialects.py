"""The dialects: each protocol besides that of `/v1`, whose errors are problem details."""

from __future__ import annotations

from pgo_collector.http.problems import Dialect
from pgo_collector.routes.autopgo import AUTOPGO
from pgo_collector.routes.datadog.errors import DATADOG
from pgo_collector.routes.otlp.errors import OTLP
from pgo_collector.routes.parca.api import PARCA
from pgo_collector.routes.profefe.envelope import PROFEFE
from pgo_collector.routes.push.errors import CONNECT, OF_INGEST
from pgo_collector.routes.submit import SUBMIT

DIALECTS: tuple[Dialect, ...] = (PROFEFE, CONNECT, OF_INGEST, PARCA, OTLP, DATADOG, AUTOPGO)
# The templates of the routes that store profiles, in every protocol.
SUBMITS = frozenset({SUBMIT, *(template for dialect in DIALECTS for template in dialect.submits)})
