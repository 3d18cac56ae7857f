"""Readers: files of profilers, in any of the formats that are known, become pprof.

`any_format` finds the format of a file from its content. `folded`, `perf_script` and `speedscope` read one
each, and fill a profile of `stack_profile`. `compression` inflates zstd and LZ4, and `json_text` reads JSON
within a bound. They run in workers: what they are given may be hostile.
"""
