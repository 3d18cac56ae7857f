"""Parca's API: what its scraper and its agent call, by gRPC through the listener in the room serve, or by
Connect.

`api` has the routes, and `write_raw` takes the body of a WriteRaw apart, in a worker. `make lock` makes
`parca_pb2` from parca.proto.
"""
