"""Addresses without functions: which programs they are in, as a worker computes it."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge import Budget, ValueType
from pprof_merge.analysis import totals_of
from pprof_merge.heap import trim_after
from pprof_merge.symbols import UnnamedBuild, unnamed_builds

from pgo_collector.engine.merge_inputs import ChosenBlobs
from pgo_collector.engine.outputs import refuse_too_large, server_budget
from pgo_collector.engine.view_inputs import ADDED_UP, Basis, read_view_inputs
from pgo_collector.engine.views import column_called
from pgo_collector.model.facts import LeftOut

_ADVICE = "select fewer profiles"
_ROW_BYTES = 200


@dataclass(frozen=True, slots=True)
class UnnamedResult:
    """The programs without names in a view of one sample type, the largest values first.

    `total` is the value of all samples, and `unnamed` that of those whose leaf has no function. The type is
    None if there was nothing to merge.
    """

    sample_type: ValueType | None
    builds: tuple[UnnamedBuild, ...]
    unnamed: int
    total: int
    profiles: int
    left_out: tuple[LeftOut, ...]
    sample_types: tuple[ValueType, ...] = ()
    basis: Basis = ADDED_UP


@trim_after
def unnamed_blobs(chosen: ChosenBlobs, sample_type: str, budget: Budget) -> UnnamedResult:
    """Return the programs without names in a view of blobs. Raises AnswerTooLarge."""
    shown = read_view_inputs(chosen, column_called(sample_type))
    column = shown.column
    if column is None:
        return UnnamedResult(None, (), 0, 0, 0, shown.left_out)
    profile = shown.merge()
    with refuse_too_large("functions without names: "):
        server_budget(budget).check_rows(len(profile.mappings), _ROW_BYTES, _ADVICE)
    builds = tuple(unnamed_builds(profile, column))
    return UnnamedResult(
        shown.sample_type,
        builds,
        sum(build.flat for build in builds),
        int(totals_of(profile)[column]),
        shown.profiles,
        shown.left_out,
        profile.header.sample_types,
        shown.basis,
    )
