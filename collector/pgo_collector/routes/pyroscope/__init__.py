"""Pyroscope's API, as its SDKs and Grafana Alloy push to it, and as Grafana reads from it.

Pushing: `api` has the routes, `push` and `ingest` take their bodies apart. Reading: `querier`
and `render` have the calls, `encoding`, `flamebearer` and `graphs` write their answers. Programs are uploaded
to `debuginfo`. `make lock` makes the classes of the messages, `push_pb2`, `querier_pb2` and `debuginfo_pb2`,
from push.proto, querier.proto and debuginfo.proto.
"""
