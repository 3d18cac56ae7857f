"""Routes: the URLs of the API, a file for each group of them.

`submit`, `merge`, `report`, `release` and `releases`, `queries` and `inventory` have the routes below `/v1`,
`openapi` describes them, and `monitoring` has `/healthz`, `/readyz` and `/metrics`. `profefe/` has profefe's
API below `/api/0`, `pyroscope/` has what Pyroscope's clients push to, `otlp/` what OpenTelemetry's export to,
and `datadog/` what Datadog's upload to; `autopgo` has autopgo's API. Each function returns a router that
`serve.app` adds to the application.
"""
