"""Names of the collector's constants that tests change, as variables in the environment of a `Server`."""

from __future__ import annotations

# A claim of a bucket, in which all takes a fifth of the time.
CLAIM = {
    "pgo_collector.store.claim._RENEWAL_SECONDS": "3",
    "pgo_collector.store.claim._SURE_SECONDS": "8",
    "pgo_collector.store.claim._WATCH_SECONDS": "10",
    "pgo_collector.store.claim._LOOK_SECONDS": "1",
}
CAPTURES = "pgo_collector.submits.captures._MOST_AT_ONCE"
DECODED_BYTES = "pgo_collector.engine.recent_profiles._MOST_BYTES"
DECODED_TIME = "pgo_collector.engine.recent_profiles._MOST_TIME"
GRPC_CONNECTION_SECONDS = "pgo_collector.serve.grpc_listener._AGE_SECONDS"
LABEL_VALUES = "pgo_collector.ui.selection_bar._MOST_VALUES"
LEAST_UNREAD = "pgo_collector.workers.dask_cluster._LEAST_UNREAD"
QUERY_LABELS = "pgo_collector.queries.grafana.profiles._MOST_LABELS"
QUERY_NODES = "pgo_collector.queries.grafana.profiles._MOST_NODES"
QUERY_POINTS = "pgo_collector.queries.grafana.profiles._MOST_POINTS"
RELEASE_SETS = "pgo_collector.releases.releases._MOST_SETS"
REPORTED_SECONDS = "pgo_collector.serve.traced._MOST_REPORTED_SECONDS"
REPORTED_STEPS = "pgo_collector.serve.traced._MOST_REPORTED_STEPS"
SECONDS_AHEAD = "pgo_collector.serve.opened._MOST_SECONDS_AHEAD"
SELECTION_CHARACTERS = "pgo_collector.ui.links._MOST_CHARACTERS"
SESSION_SECONDS = "pgo_collector.serve.opened._SESSION_SECONDS"
SIGN_IN_WAIT = "pgo_collector.ui.throttle._LONGEST_SECONDS"
SYMBOLS_BUILDS = "pgo_collector.store.start_lines._MOST_BUILDS"
TIMELINE_STEPS = "pgo_collector.queries.activity._MOST_STEPS"
TRACE_SPANS = "pgo_collector.serve.traced._MOST_SPANS"
TRACE_WINDOW = "pgo_collector.serve.traced._WINDOW_SECONDS"
WARMING_PAUSE = "pgo_collector.merges.warming._PAUSE_SECONDS"
WEBHOOK_DAYS = "pgo_collector.serve.opened._WEBHOOK_DAYS"
WEBHOOK_EVENTS = "pgo_collector.serve.opened._WEBHOOK_EVENTS"
WEBHOOK_SECONDS = "pgo_collector.serve.opened._WEBHOOK_SECONDS"
