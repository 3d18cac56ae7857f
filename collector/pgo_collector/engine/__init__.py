"""Engine: the work of the worker processes. Everything here may block and use a whole core.

The server calls in a worker: `validation`, which checks submitted bodies within a time for each, and
`pushes`, which takes those of other protocols apart, and `function_seconds`, which measures what they take;
`tasks`, for merges, reports and releases; `views`, `surveys`, `latencies`, `sample_types` and `unnamed`, for
questions about stored profiles; `binaries` and `start_lines`, about programs, with `call_places` for the
lines of calls by address.

Inside, `merge_inputs` reads the blobs that a merge needs, which `blob_columns` describes in a few arrays,
tens of thousands of them; `view_inputs` says how a view brings them together, which isn't always the sum;
`symbols` names the functions of what it shows; `row_cache` keeps decoded profiles in memory and on disk (as
`packing` writes them), and `recent_profiles` what was decoded for validation until it is there; `renditions`
says in which format, by which rules and with which weights a merge is served, and `outputs` writes results
within a budget.
"""
