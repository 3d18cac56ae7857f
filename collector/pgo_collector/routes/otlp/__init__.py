"""OpenTelemetry's profiles (OTLP), over HTTP, and over gRPC by the listener in the room serve, which calls
this route.

`api` has the route. In a worker, `unpack` takes a request apart; `versions` tells which version of the wire
it is in, `dictionary` reads the tables, `convert` makes a pprof profile of each profile, to which `joining`
gives start lines, and `naming` says which series it belongs to. `errors` says how a refusal is
answered. `make lock` makes `export_pb2` from export.proto.
"""
