"""Pyroscope's API, as its SDKs and Grafana Alloy push to it. `api` has the routes, `push` and `ingest` take
their bodies apart, and `naming` says which series a profile belongs to. `make lock` makes `push_pb2` from
`push.proto`.
"""
