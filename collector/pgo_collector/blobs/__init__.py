"""Blobs: where the bytes of profiles are, a folder or a bucket, and what stands beside each blob.

Start with `storage`: the Protocol `Storage` and what goes through it. `folder` and `bucket` implement it,
`files` writes files and folders durably, and `copies` keeps local copies of what is in a bucket. `blobs` has
the profiles in a storage, each combined one with the list of its inputs, which is sealed into the blob's own
file, too. The catalog knows which blobs count.
"""
