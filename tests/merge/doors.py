"""The modules of the merge engine that others import from: what each publishes is its `__all__`."""

DOORS = (
    "pprof_merge",
    "pprof_merge.codec",
    "pprof_merge.merging",
    "pprof_merge.analysis",
    "pprof_merge.formats",
    "pprof_merge.binary",
    "pprof_merge.symbols",
    "pprof_merge.heap",
    "pprof_merge.streams",
    "pprof_merge.arrays",
)
