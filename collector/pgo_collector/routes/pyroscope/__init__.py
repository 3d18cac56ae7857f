"""Pyroscope's API, as its SDKs and Grafana Alloy push to it, and as Grafana reads from it.

Pushing: `api` has the routes, `push` and `ingest` take their bodies apart, and `naming` says which series a
profile belongs to. Reading: `querier` has the calls, `selector` and `matching` find what their selectors
mean, `profile_types` has Grafana's names of our types, and `profiles` asks the workers. `make lock` makes the
classes of the messages from `push.proto` and `querier.proto`.
"""
