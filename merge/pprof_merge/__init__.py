"""Merge many pprof profiles into one, exactly as google/pprof does, and write it for a compiler or a person.

    from pprof_merge import FORMATS, decode, merge

    merged = merge(map(decode, bodies))  # bodies: bytes of pprof profiles, gzip or bare protobuf
    FORMATS["go"].write(merged)          # bytes for `go build -pgo`

The names in `__all__` are the public API; everything else may change. The folders, each of which imports
only from those before it: `columns` (flat arrays), `profile` (one profile as columns), `codec` (bytes ↔
columns), `merging` (dictionary, sums, weights), `analysis` (top table, flame graph, diff, latencies, report,
rules), `formats` (output formats), `binary` (a program beside its profile) and `command` (the command
`pprof-merge`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pprof_merge.compiled import ENGINE  # isort: skip - decides how the modules below are imported
from pprof_merge.arrays import Bytes, Int32s, Int64s, Ints
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.codec.compression import GZIP_MAGIC, compress, inflate
from pprof_merge.codec.decode import StepTimes, Summary, decode, summaries
from pprof_merge.codec.encode import encode, encode_pieces
from pprof_merge.errors import (
    BinaryInvalid,
    IncompatibleProfiles,
    LimitExceeded,
    MalformedProfile,
    OutputTooLarge,
    ProfileError,
    RulesInvalid,
    SymbolsInvalid,
    UnfitForFormat,
    UnfitForWeight,
    WeightingInvalid,
)
from pprof_merge.formats import FORMATS, Format
from pprof_merge.heap import keep_heap, keep_heap_anyway, share_heap, trim_after, trim_heap
from pprof_merge.limits import BinaryLimits, Limits
from pprof_merge.merging.batch import merge
from pprof_merge.merging.headers import check_compatible
from pprof_merge.merging.weights import (
    PLAIN_WEIGHTING,
    WEIGHTS,
    Weighting,
    parse_half_life,
    parse_weight,
)
from pprof_merge.profile import Header, Profile, ValueType

if TYPE_CHECKING:
    from pprof_merge.analysis.coverage import parse_symbols
    from pprof_merge.analysis.diff import Usage, diff_tables, share_of
    from pprof_merge.analysis.flame_graph import FlameGraph, FlameView
    from pprof_merge.analysis.focus import NameMatcher, focus_calls, focus_names
    from pprof_merge.analysis.function_use import Call, FunctionUse, LineUse, Place
    from pprof_merge.analysis.grouping import GROUPINGS, NAMES_OF_FRAMES, Grouping, function_in, package_of
    from pprof_merge.analysis.latency import (
        ALL_LATENCIES,
        N_BUCKETS,
        LatencyHistogram,
        LatencyRange,
        LatencyTimeline,
        bucket_bounds,
        focus_latency,
    )
    from pprof_merge.analysis.noise import CONFIDENCE, Interval, count_samples, difference_interval
    from pprof_merge.analysis.overlap import overlap
    from pprof_merge.analysis.report import KeptApart, ReportedProfile, ReportOptions, report
    from pprof_merge.analysis.rules import Rules, apply_rules, parse_rules
    from pprof_merge.analysis.sample_types import focus_types
    from pprof_merge.analysis.stacks import Frame, default_column, stacks_of
    from pprof_merge.analysis.timeline import Timeline
    from pprof_merge.analysis.top_table import TopOrder, TopSum, TopTable
    from pprof_merge.analysis.weighed_stacks import WeighedStacks
    from pprof_merge.binary.counting import llvm_with_binary
    from pprof_merge.binary.elf import Binary
    from pprof_merge.columns.ragged import first_appearance
    from pprof_merge.formats.llvm import most_sampled_build
    from pprof_merge.merging.collection import Collection
    from pprof_merge.merging.segment import Segment

# Names that are imported on first use, with their modules: these import NumPy, and the command does without.
_WITH_NUMPY = {
    "ALL_LATENCIES": "analysis.latency",
    "Binary": "binary.elf",
    "CONFIDENCE": "analysis.noise",
    "Call": "analysis.function_use",
    "Collection": "merging.collection",
    "FlameGraph": "analysis.flame_graph",
    "FlameView": "analysis.flame_graph",
    "Frame": "analysis.stacks",
    "FunctionUse": "analysis.function_use",
    "GROUPINGS": "analysis.grouping",
    "Grouping": "analysis.grouping",
    "LatencyHistogram": "analysis.latency",
    "LatencyRange": "analysis.latency",
    "LatencyTimeline": "analysis.latency",
    "LineUse": "analysis.function_use",
    "NAMES_OF_FRAMES": "analysis.grouping",
    "N_BUCKETS": "analysis.latency",
    "NameMatcher": "analysis.focus",
    "Place": "analysis.function_use",
    "ReportOptions": "analysis.report",
    "Interval": "analysis.noise",
    "KeptApart": "analysis.report",
    "ReportedProfile": "analysis.report",
    "Rules": "analysis.rules",
    "Segment": "merging.segment",
    "Timeline": "analysis.timeline",
    "TopOrder": "analysis.top_table",
    "TopSum": "analysis.top_table",
    "TopTable": "analysis.top_table",
    "Usage": "analysis.diff",
    "WeighedStacks": "analysis.weighed_stacks",
    "apply_rules": "analysis.rules",
    "bucket_bounds": "analysis.latency",
    "count_samples": "analysis.noise",
    "default_column": "analysis.stacks",
    "diff_tables": "analysis.diff",
    "difference_interval": "analysis.noise",
    "first_appearance": "columns.ragged",
    "focus_calls": "analysis.focus",
    "focus_latency": "analysis.latency",
    "focus_names": "analysis.focus",
    "focus_types": "analysis.sample_types",
    "function_in": "analysis.grouping",
    "llvm_with_binary": "binary.counting",
    "most_sampled_build": "formats.llvm",
    "overlap": "analysis.overlap",
    "package_of": "analysis.grouping",
    "parse_rules": "analysis.rules",
    "parse_symbols": "analysis.coverage",
    "report": "analysis.report",
    "share_of": "analysis.diff",
    "stacks_of": "analysis.stacks",
}

__all__ = [
    "ALL_LATENCIES",
    "CONFIDENCE",
    "ENGINE",
    "FORMATS",
    "GROUPINGS",
    "GZIP_MAGIC",
    "NAMES_OF_FRAMES",
    "N_BUCKETS",
    "PLAIN_WEIGHTING",
    "UNBOUNDED",
    "WEIGHTS",
    "Binary",
    "BinaryInvalid",
    "BinaryLimits",
    "Budget",
    "Bytes",
    "Call",
    "Collection",
    "FlameGraph",
    "FlameView",
    "Format",
    "Frame",
    "FunctionUse",
    "Grouping",
    "Header",
    "IncompatibleProfiles",
    "Int32s",
    "Int64s",
    "Interval",
    "Ints",
    "KeptApart",
    "LatencyHistogram",
    "LatencyRange",
    "LatencyTimeline",
    "LimitExceeded",
    "Limits",
    "LineUse",
    "MalformedProfile",
    "NameMatcher",
    "OutputTooLarge",
    "Place",
    "Profile",
    "ProfileError",
    "ReportOptions",
    "ReportedProfile",
    "Rules",
    "RulesInvalid",
    "Segment",
    "StepTimes",
    "Summary",
    "SymbolsInvalid",
    "Timeline",
    "TopOrder",
    "TopSum",
    "TopTable",
    "UnfitForFormat",
    "UnfitForWeight",
    "Usage",
    "ValueType",
    "WeighedStacks",
    "Weighting",
    "WeightingInvalid",
    "apply_rules",
    "bucket_bounds",
    "check_compatible",
    "compress",
    "count_samples",
    "decode",
    "default_column",
    "diff_tables",
    "difference_interval",
    "encode",
    "encode_pieces",
    "first_appearance",
    "focus_calls",
    "focus_latency",
    "focus_names",
    "focus_types",
    "function_in",
    "inflate",
    "keep_heap",
    "keep_heap_anyway",
    "llvm_with_binary",
    "merge",
    "most_sampled_build",
    "overlap",
    "package_of",
    "parse_half_life",
    "parse_rules",
    "parse_symbols",
    "parse_weight",
    "report",
    "share_heap",
    "share_of",
    "stacks_of",
    "summaries",
    "trim_after",
    "trim_heap",
]


def __getattr__(name: str) -> Any:
    """Import a name on its first use, and return it."""
    module = _WITH_NUMPY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
