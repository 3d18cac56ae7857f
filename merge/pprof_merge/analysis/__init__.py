"""Analysis: pure functions from a merged profile to what a person or a build wants to know of it.

`stacks` lists the frames of each sample, `grouping` names a frame's function, package, file or line;
`top_table`, `diff`, `weighed_stacks`, `flame_graph` and `timeline` build on both, `totals` has what shares
are of, and `noise` says how far a difference can be trusted. `latency` reads the histograms in the profiles
of latency trackers. `edges` and `compiler` find the weighted calls that Go's compiler reads, `sample_paths`
the lines that LLVM's read, and `call_edges` has them as arrays; `edge_overlap`, `coverage`, `outliers` and
`build_report` build on it. `function_use` is what one function takes, from its callers to its lines.
`function_masks` sums the stacks with certain functions, in one pass over a profile's columns. `sample_groups`
names samples by a label, and `request_spans` finds the span that takes most. `rules` removes functions from a
profile, `focus` keeps some of its samples or frames, and `sample_types` some of its values; `shown` makes it
ready for views, which have demangled names (`demangling`, by `short_names`) and not the `dropped_frames` that
the profile itself wants left out. `trimmed_paths` cuts off where files were built. `gain` says what a build
can be expected to gain. `units` knows what the units of values are.

Others use the names in `__all__`, which are imported on first use.
"""

from typing import TYPE_CHECKING

from pprof_merge.errors import RulesInvalid, SymbolsInvalid
from pprof_merge.lazy import lazy_names

if TYPE_CHECKING:
    from pprof_merge.analysis.build_report import KeptApart, ReportedProfile, ReportOptions, report
    from pprof_merge.analysis.coverage import parse_symbols
    from pprof_merge.analysis.demangling import name_finder, shown_function, shown_name
    from pprof_merge.analysis.diff import Usage, diff_tables, share_of
    from pprof_merge.analysis.edge_overlap import overlap
    from pprof_merge.analysis.flame_graph import FlameGraph, FlameView
    from pprof_merge.analysis.focus import NameMatcher, focus_calls, focus_names
    from pprof_merge.analysis.function_masks import MaskedValues, masked_values
    from pprof_merge.analysis.function_use import Call, FunctionUse, LineUse, Place
    from pprof_merge.analysis.gain import kept_by_llvm
    from pprof_merge.analysis.grouping import (
        GROUPINGS,
        NAMES_OF_FRAMES,
        UNKNOWN,
        Grouping,
        function_in,
        package_of,
    )
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
    from pprof_merge.analysis.request_spans import SpanValue, largest_span
    from pprof_merge.analysis.rules import Rules, apply_rules, parse_rules
    from pprof_merge.analysis.sample_groups import MOST_GROUPS, group_samples, largest_groups
    from pprof_merge.analysis.sample_paths import BRANCH_TYPES
    from pprof_merge.analysis.sample_types import split_types
    from pprof_merge.analysis.shown import as_shown
    from pprof_merge.analysis.stacks import Frame, default_column, stacks_of
    from pprof_merge.analysis.timeline import Timeline
    from pprof_merge.analysis.top_table import TopOrder, TopSum, TopTable
    from pprof_merge.analysis.totals import totals_of
    from pprof_merge.analysis.trimmed_paths import with_trimmed_paths
    from pprof_merge.analysis.units import Unit, unit_called
    from pprof_merge.analysis.weighed_stacks import WeighedStacks

__all__ = [  # noqa: RUF022 - in the order in which a reader looks for them
    # Tables of functions, packages, files or lines, and what differs between two of them.
    "TopTable",
    "TopOrder",
    "TopSum",
    "Usage",
    "diff_tables",
    "share_of",
    "totals_of",
    "GROUPINGS",
    "NAMES_OF_FRAMES",
    "UNKNOWN",
    "Grouping",
    "function_in",
    "package_of",
    "Unit",
    "unit_called",
    # One function: its lines, callers and callees.
    "FunctionUse",
    "LineUse",
    "Call",
    "Place",
    # A profile as views show it, the name of a function there, and what finds one.
    "as_shown",
    "name_finder",
    "shown_function",
    "shown_name",
    "with_trimmed_paths",
    # Flame graphs, and the stacks that they are made from.
    "FlameGraph",
    "FlameView",
    "WeighedStacks",
    "group_samples",
    "largest_groups",
    "MOST_GROUPS",
    "Frame",
    "stacks_of",
    "default_column",
    # Shares over time, and how far a difference can be trusted.
    "Timeline",
    "CONFIDENCE",
    "Interval",
    "count_samples",
    "difference_interval",
    # What the stacks with certain functions come to, of one profile that was read.
    "masked_values",
    "MaskedValues",
    # Latencies, from profiles of latency trackers.
    "LatencyHistogram",
    "LatencyTimeline",
    "LatencyRange",
    "ALL_LATENCIES",
    "N_BUCKETS",
    "bucket_bounds",
    # The request that takes most of a profile.
    "SpanValue",
    "largest_span",
    # A part of a profile.
    "NameMatcher",
    "focus_calls",
    "focus_latency",
    "focus_names",
    "split_types",
    "Rules",
    "parse_rules",
    "apply_rules",
    "RulesInvalid",
    # Whether a profile is fit to build with.
    "report",
    "ReportedProfile",
    "ReportOptions",
    "KeptApart",
    "kept_by_llvm",
    "BRANCH_TYPES",
    "overlap",
    "parse_symbols",
    "SymbolsInvalid",
]

__getattr__ = lazy_names(
    __name__,
    {
        "coverage": ["parse_symbols"],
        "demangling": ["name_finder", "shown_function", "shown_name"],
        "diff": ["Usage", "diff_tables", "share_of"],
        "flame_graph": ["FlameGraph", "FlameView"],
        "focus": ["NameMatcher", "focus_calls", "focus_names"],
        "function_masks": ["MaskedValues", "masked_values"],
        "function_use": ["Call", "FunctionUse", "LineUse", "Place"],
        "grouping": ["GROUPINGS", "NAMES_OF_FRAMES", "UNKNOWN", "Grouping", "function_in", "package_of"],
        "latency": [
            "ALL_LATENCIES",
            "N_BUCKETS",
            "LatencyHistogram",
            "LatencyRange",
            "LatencyTimeline",
            "bucket_bounds",
            "focus_latency",
        ],
        "noise": ["CONFIDENCE", "Interval", "count_samples", "difference_interval"],
        "edge_overlap": ["overlap"],
        "build_report": ["KeptApart", "ReportedProfile", "ReportOptions", "report"],
        "gain": ["kept_by_llvm"],
        "request_spans": ["SpanValue", "largest_span"],
        "rules": ["Rules", "apply_rules", "parse_rules"],
        "sample_groups": ["MOST_GROUPS", "group_samples", "largest_groups"],
        "sample_paths": ["BRANCH_TYPES"],
        "sample_types": ["split_types"],
        "shown": ["as_shown"],
        "stacks": ["Frame", "default_column", "stacks_of"],
        "timeline": ["Timeline"],
        "top_table": ["TopOrder", "TopSum", "TopTable"],
        "totals": ["totals_of"],
        "trimmed_paths": ["with_trimmed_paths"],
        "units": ["Unit", "unit_called"],
        "weighed_stacks": ["WeighedStacks"],
    },
)


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
