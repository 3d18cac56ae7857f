"""Functions without names: which programs they are in, and whether the collector has these programs."""

from __future__ import annotations

import asyncio

from pprof_merge.analysis import share_of

from pgo_collector.engine.unnamed import UnnamedResult, unnamed_blobs
from pgo_collector.model.selection import Selection
from pgo_collector.queries import answers
from pgo_collector.queries.fleet import Fleet, Found, nothing_readable


async def unnamed_of(fleet: Fleet, selection: Selection, sample_type: str) -> answers.Unnamed:
    """Return which programs of a service have addresses without functions, the largest values first.

    Raises NothingToMerge, AnswerTooLarge, BlobsGone, NotStored or WorkerUnavailable.
    """
    return await fleet.kept.answer(
        ("unnamed", sample_type),
        [selection],
        lambda: _made(fleet, selection, sample_type),
        lambda made: not made.left_out,
    )


async def _made(fleet: Fleet, selection: Selection, sample_type: str) -> answers.Unnamed:
    found = await fleet.find(selection)
    (result,) = [each async for _, each in fleet.run(found, unnamed_blobs, lambda *_: (sample_type,))]
    symbols = await asyncio.to_thread(fleet.tasks.symbols_of, selection.service)
    return _answer(found, result, {of.build_id for of in symbols.stored})


def _answer(found: Found, result: UnnamedResult, stored: set[str]) -> answers.Unnamed:
    if result.sample_type is None:
        raise nothing_readable(found, [left.reason for left in result.left_out])
    return answers.Unnamed(
        sample_type=answers.SampleType.of(result.sample_type),
        sample_types=[*map(answers.SampleType.of, result.sample_types)],
        basis=answers.ValuesBasis.of(result.basis, result.sample_type),
        others={},
        profiles=result.profiles,
        left_out=len(result.left_out),
        coarse=len(found.coarse.blobs),
        coarse_labels=list(found.coarse.labels),
        total=result.total,
        unnamed=result.unnamed,
        unnamed_share=share_of(result.unnamed, result.total),
        programs=[
            answers.UnnamedProgram(
                build_id=build.build_id,
                file=build.file,
                flat=build.flat,
                cum=build.cum,
                flat_share=share_of(build.flat, result.total),
                cum_share=share_of(build.cum, result.total),
                addresses=build.addresses,
                stored=build.build_id in stored,
            )
            for build in result.builds
        ],
    )
