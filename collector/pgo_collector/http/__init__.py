"""HTTP: what every request passes through on its way to a route and back.

In: `connection` (one TCP connection, within its bounds) and `connection_pool` (all of them), `body` (a
request body in memory or on disk), `keys` and `auth` (who may do what), `parameters` and `selections` (the
query string), `ingest` (a body becomes a stored profile). Out: `answers` (JSON, downloads, and their headers)
and `problems` (every error as RFC 9457, or as profefe's clients expect it, see `profefe`). `openapi`
describes the routes.
"""
