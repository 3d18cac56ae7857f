"""HTTP: what every request passes through on its way to a route and back.

In: `routing` (a route is checks and a function of the request), `keys` and `auth` (who may do what, and
what layers and routes know about a request), `parameters` and `selections` (the query string), `forms`
(multipart bodies). Out: `answers` (JSON, downloads, and their headers), `problems` (errors as RFC 9457, or as
the clients of another protocol expect them).

Around every route: `layers` has the access log and what answers cancelled requests, and `traces` sends the
traces. `openapi` describes the routes, `first_answers` are for a server that starts, and `session_secret`
is what signs the sessions of the pages.
"""
