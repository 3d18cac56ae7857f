"""Codec: the bytes of a pprof profile ↔ columns.

`decode` reads profiles with the other modules in this order: `compression` inflates gzip, `records` splits
the protobuf into its records, `fields`, `locations` and `samples` turn records into columns, and `resolve`
replaces ids by row numbers. The result is a `batch.Batch`. `strict_reader` reads what these bulk readers
can't: records in an unusual layout, one field at a time. `other_formats` recognizes input that is no profile.

`encode` writes a `Profile` as protobuf, with `encode_samples` and `message_rows`. Both directions use
`varint`.
"""
