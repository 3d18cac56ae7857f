"""Routes: the URLs of the API, a file for each group of them.

`submit`, `merge`, `report`, `release` and `releases`, `queries`, `inventory`, `symbols`, `binaries` and
`traces` have the routes below /v1, `openapi` describes them, and `monitoring` has /healthz, /readyz and
/metrics. Each other protocol has a folder, `profefe/`, `pyroscope/`, `otlp/`, `parca/` and `datadog/`, or a
file, `autopgo`. What several of them need is in `push/`, and `protocols` has a row for each.

Each function returns `Routes` that the room serve adds to the application.
"""
