"""HTTP: what every request passes through on its way to a route and back.

In: `connection` (one TCP connection and its bounds), `connection_pool` (all connections), `keys` and `auth`
(who may do what), `parameters` and `selections` (the query string), `body` (the request body, in memory or on
disk), `ingest` (a body becomes a stored profile). Out: `answers` (JSON, downloads, and their headers),
`problems` (errors as RFC 9457, or as the clients of another protocol expect them).

Around every route: `access_log`, `drained_body` and `abandoned` are ASGI layers, and `context` is what they
and the routes know about a request. `openapi` describes the routes.
"""
