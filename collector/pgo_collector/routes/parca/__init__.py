"""Parca's API: what its scraper and its agent call, by gRPC through the listener in the room serve, or by
Connect.

`api` has the routes to which profiles come, and `write_raw` takes the body of a WriteRaw apart, in a worker.
`debuginfo` has those to which programs are uploaded. `make lock` makes `parca_pb2` from parca.proto.
"""
