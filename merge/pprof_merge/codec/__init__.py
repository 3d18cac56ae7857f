"""Codec: the bytes of a pprof profile ↔ columns.

`decode.decode_all` reads profiles in the order of its imports: `compression` inflates, `records` splits the
protobuf by field (`strict_reader` does, one field at a time, what a bulk pass over regular ones can't),
`fields`, `locations` and `samples` turn records into columns, and `resolve` replaces ids by row numbers. The
result is a `batch.Batch`. `encode.encode` writes a `Profile` as protobuf with the help of `encode_samples`
and `message_rows`. Both directions share `varint`.
"""
