"""Engine: the work of the worker processes. Everything here may block and use a whole core.

The server calls the functions of `tasks`, `queries` and `validation` in a worker. `validation` checks
submitted bodies, `merge_inputs` reads the blobs that a merge needs, `row_cache` keeps decoded profiles in
memory and on disk (as `packing` writes them), `renditions` says in which format, by which rules and with
which weights a merge is served, and `outputs` writes results within a budget. `blob_columns` describes tens
of thousands of blobs in a few arrays.
"""
