"""Codec: the bytes of a pprof profile ↔ columns.

`decode` reads profiles: `compression` inflates gzip, `reader` turns the protobuf into columns, and what they
are is then seen as a `Profile`. `encode` writes a `Profile` as protobuf, with `writer`. `wire` has the wire
format, for both. `other_formats` recognizes input that is no profile.
"""
