"""Engine: what worker processes do with profiles. Everything here may block and use a whole core.

`tasks` and `queries` are the functions that the server calls in a worker. `validation` checks what was
submitted, `merge_inputs` reads the blobs that a merge needs, `row_cache` keeps what was decoded, in memory
and on disk (written by `packing`), `renditions` says in which format, by which rules and weights a merge is
wanted, and `outputs` writes what comes out, within a budget. `blob_columns` names ten thousand blobs in a few
arrays; `seals` appends to a combined blob the list of what it is made of.
"""
