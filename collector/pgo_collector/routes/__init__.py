"""Routes: the URLs of the API, a file for each group of them.

`submit`, `merge`, `report`, `release` and `releases`, `queries`, `inventory` and `traces` have the routes
below `/v1`, `openapi` describes them, and `monitoring` has `/healthz`, `/readyz` and `/metrics`. Each other
protocol has a folder: `profefe/`, `pyroscope/`, `otlp/`, `parca/` and `datadog/`, or a file: `autopgo`; its
`errors` (of profefe: `envelope`) say how it answers a failure, and `dialects` lists them all.

Each function returns a router that `serve.app` adds to the application.
"""
