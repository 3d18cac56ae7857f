"""Storage: where the bytes of blobs are, a folder or a bucket, behind one seam.

`storage` has the seam, the Protocol `Storage`, and what goes through it; `folder` and `bucket` implement it,
and `files` writes files and folders durably. Whoever needs a blob asks a `Storage` for it by name; what a
blob and its name are is the business of `model` and `store`.
"""
