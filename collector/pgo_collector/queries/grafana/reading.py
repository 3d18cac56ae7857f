"""Answers made of the profiles that a query selects: flame graphs, profiles, and sums over time.

Workers write large answers as they are sent; None stands for no profile.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pprof_merge import FORMATS
from pprof_merge.analysis import FlameGraph
from pprof_merge.arrays import Int64s

from pgo_collector.catalog.rows import Blob
from pgo_collector.engine.outputs import refuse_too_large
from pgo_collector.engine.renditions import Rendition
from pgo_collector.engine.sample_types import (
    Exemplar,
    ExemplarKind,
    PartResult,
    SumsResult,
    WriteProfile,
    draw_stacks,
    extract_sample_type,
    inflate_profile,
    join_profiles,
    keep_larger,
    total_blobs,
    weigh_sample_type,
)
from pgo_collector.errors import NothingSelected, NothingToMerge, NotOfThisProfile, ParameterInvalid
from pgo_collector.merges.merges import Merges
from pgo_collector.merges.rules_folder import RulesFolder
from pgo_collector.model.ids import uuid_of
from pgo_collector.model.profile_types import KEPT_APART, PROCESS_CPU
from pgo_collector.model.selection import Selection
from pgo_collector.model.series import SERVICE_NAME, BlobName, Scope, is_hidden, name_of_service
from pgo_collector.model.series import Series as BlobSeries
from pgo_collector.queries.fleet import Fleet
from pgo_collector.queries.grafana.profile_types import TYPE_LABELS
from pgo_collector.queries.grafana.profiles import Profiles, Query, Selected
from pgo_collector.store.store import not_stored

# The values of a group's labels, by name.
GroupLabels = tuple[tuple[str, str], ...]


class PointExemplar(NamedTuple):
    """A profile in a point, or its largest span: the ids, the time in ms, the value, and further labels."""

    profile: str
    span: str
    trace: str
    time: int
    value: int
    labels: GroupLabels


class Point(NamedTuple):
    """A point of a group: its time in ms, the sum, and the largest that is in it, if that is asked for."""

    time: int
    value: float
    exemplar: PointExemplar | None = None


Points = list[Point]

# What Pyroscope draws if a client names no number.
_USUAL_NODES = 8192
_LONGEST_STEP_MS = 1 << 53


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of time: a profile counts at the end of its step, which is `width` ms long, and at `end` at last.

    Times are in ms since 1970; `end` None is no end.
    """

    start: int
    end: int | None
    width: int

    @classmethod
    def of(cls, start: int, end: int, seconds: float) -> Steps:
        """Return the steps of a call. Raises ParameterInvalid."""
        if not (math.isfinite(seconds) and 1 <= seconds * 1000 <= _LONGEST_STEP_MS):
            raise ParameterInvalid("step: give seconds, 0.001 or more")
        return cls(start, None if start == 0 == end else end, int(seconds * 1000))

    def time_of(self, time_nanos: int) -> int:
        """Return the time, in ms, at which a profile of this time counts."""
        steps = -((self.start - max(time_nanos // 10**6, self.start)) // self.width)
        time = self.start + steps * self.width
        return time if self.end is None else min(time, self.end)


@dataclass(frozen=True, slots=True)
class Grouping:
    """How a series is asked for: grouped by labels, in steps, as mean or sum, only the `most` largest groups.

    `most` 0 is all. If it `is_dense`, there are points of all steps between a group's first and its last.
    Points have `exemplars` of a kind.
    """

    by: Sequence[str]
    steps: Steps
    is_mean: bool = False
    most: int = 0
    is_dense: bool = False
    exemplars: ExemplarKind = ""


class Reading:
    """Answers the calls of `querier` and `render` that read profiles."""

    def __init__(self, profiles: Profiles, fleet: Fleet, merges: Merges, rules: RulesFolder) -> None:
        self._profiles = profiles
        self._fleet = fleet
        self._merges = merges
        self._rules = rules
        self._store, self._workers = merges.store, merges.tasks.workers

    def nodes(self, asked: int) -> int:
        """Return how many bars a flame graph may have for which a client `asked`; 0 is the usual number.

        Raises ParameterInvalid.
        """
        most = self._profiles.limits.nodes
        if asked > most:
            raise ParameterInvalid(f"max_nodes={asked:,}: the limit is {most:,}")
        return asked if asked > 0 else min(_USUAL_NODES, most)

    async def flame_graph(
        self, scope: Scope, sides: Sequence[Query], nodes: int, write: Callable[[FlameGraph], bytes]
    ) -> bytes:
        """Return what `write` makes of the flame graph of one query, or of two that are compared.

        Raises ParameterInvalid, AnswerTooLarge, NotStored or WorkerUnavailable.
        """
        async with self._files() as files:
            parts = [await self._parts(files, scope, side, weigh_sample_type) for side in sides]
            return await self._workers.run(draw_stacks, parts, nodes, write, self._fleet.budget)

    async def profile(self, scope: Scope, query: Query, write: WriteProfile) -> bytes | None:
        """Return what `write` makes of the merge of a query's profiles, as bare protobuf.

        Raises as `flame_graph` does, and NotComparable.
        """
        async with self._files() as files:
            parts = await self._parts(files, scope, query, extract_sample_type)
            if not parts:
                return None
            return await self._workers.run(join_profiles, parts, write, self._fleet.budget)

    async def build_profile(self, scope: Scope, query: Query, write: WriteProfile) -> bytes | None:
        """Return what `write` makes of a service's merge for Go's compiler, which gives the same build.

        It is `/v1/merge` with `format=go`. Raises as that does, and ParameterInvalid.
        """
        selected = await self._profiles.select(scope, query)
        fit = [each for each in selected.selections if each.type != PROCESS_CPU]
        if selected.selections and not fit:
            raise NotOfThisProfile(f"profiles match, but not for a build. {KEPT_APART}")
        if len(fit) > 1:
            raise ParameterInvalid(
                f"label selector: it matches {len(fit):,} services, and a build profile needs one; add"
                ' service_name="..."'
            )
        for selection in fit:
            rules = await asyncio.to_thread(self._rules.of, selection.service)
            try:
                made = await self._merges.current(selection, Rendition(FORMATS["go"], rules))
            except NothingSelected:
                break
            except NothingToMerge as error:
                raise NotOfThisProfile(str(error)) from error
            with made.file, refuse_too_large("format=go: "):
                self._fleet.budget.check(made.size)
                content = await asyncio.to_thread(made.read)
            return await self._workers.run(inflate_profile, content, write, self._fleet.budget)
        return None

    async def series(self, scope: Scope, query: Query, asked: Grouping) -> list[tuple[GroupLabels, Points]]:
        """Return the sums of a query's profiles in steps of time, for each group of series.

        Of a state, they are what is held in the step. There are points of the steps that have profiles.
        Raises ParameterInvalid, AnswerTooLarge or WorkerUnavailable.
        """
        selected = await self._profiles.select(scope, query)
        groups = _Groups(selected, query, asked, self._profiles.limits.points)
        of_type = query.type.value_type

        def arguments(selection: Selection, blobs: Sequence[Blob]) -> tuple[Any, ...]:
            return of_type, groups.number(selection, blobs), asked.exemplars

        running = self._fleet.run_each(selected.selections, total_blobs, arguments)
        async with aclosing(running) as results:
            async for selection, result in results:
                groups.add(selection, result)
        return await asyncio.to_thread(groups.largest)

    @asynccontextmanager
    async def _files(self) -> AsyncIterator[AsyncExitStack]:
        """Open a context for files of parts; failures of the disk in it are refusals."""
        try:
            async with AsyncExitStack() as files:
                yield files
        except OSError as error:
            raise not_stored("part of an answer", error) from error

    async def _parts(
        self, files: AsyncExitStack, scope: Scope, query: Query, task: Callable[..., PartResult]
    ) -> list[Path]:
        """Have the workers write a file for each selection of a query; return those that were written.

        All together have the budget of one answer.
        """
        selected = await self._profiles.select(scope, query)
        parts = {
            selection: await files.enter_async_context(self._store.part())
            for selection in selected.selections
        }
        written = 0

        def arguments(selection: Selection, _: Sequence[Blob]) -> tuple[Any, ...]:
            return query.type.value_type, query.calls, parts[selection]

        async with aclosing(self._fleet.run_each(selected.selections, task, arguments)) as results:
            async for selection, result in results:
                if not result.size:
                    del parts[selection]
                written += result.size
                with refuse_too_large():
                    self._fleet.budget.check(written, "select fewer profiles")
        return [*parts.values()]


class _Part(NamedTuple):
    """The points of a group in one selection: time in ms, sum and number of profiles, (n, 3)."""

    points: Int64s
    is_state: bool


class _Groups:
    """The groups of a series with their points, filled selection by selection.

    `number` is called in threads, for several selections at once, and `add` on the event loop.
    """

    def __init__(self, selected: Selected, query: Query, asked: Grouping, most_points: int) -> None:
        self._asked = asked
        self._most_points = most_points
        of_type = query.type.labels
        self._fixed = {name: of_type[name] for name in asked.by if name in TYPE_LABELS}
        self._spelled = {
            name: selected.series.spelled(name)
            for name in asked.by
            if name != SERVICE_NAME and not is_hidden(name)
        }
        # The time of each point of a selection, and the labels of its group, by the number in the engine.
        self._keys: dict[Selection, list[tuple[GroupLabels, int]]] = {}
        self._parts: defaultdict[GroupLabels, list[_Part]] = defaultdict(list)
        self._times: defaultdict[GroupLabels, set[int]] = defaultdict(set)
        # The exemplar of each point of a group, by its time.
        self._exemplars: dict[tuple[GroupLabels, int], Exemplar] = {}
        self._count = 0

    def number(self, selection: Selection, blobs: Sequence[Blob]) -> dict[str, int]:
        """Return the number of the point in which each blob counts, by name. Raises ParameterInvalid."""
        known: dict[BlobSeries, GroupLabels] = {}
        keys: dict[tuple[GroupLabels, int], None] = {}
        of_blob: list[tuple[GroupLabels, int]] = []
        for blob in blobs:
            series = blob.name.series
            if series not in known:
                known[series] = self._labels_of(series)
            of_blob.append((known[series], self._asked.steps.time_of(blob.name.identity.time_nanos)))
            keys[of_blob[-1]] = None
            self._check(len(keys))
        # The engine takes the points of a group in the order of time.
        self._keys[selection] = sorted(self._filled(keys) if self._asked.is_dense else keys)
        numbers = {key: number for number, key in enumerate(self._keys[selection])}
        return {str(blob.name): numbers[key] for blob, key in zip(blobs, of_blob, strict=True)}

    def _filled(self, keys: Iterable[tuple[GroupLabels, int]]) -> set[tuple[GroupLabels, int]]:
        """Return the points, and those of the steps between them."""
        filled = {*keys}
        for labels, of_group in groupby(sorted(filled), lambda key: key[0]):
            times = [time for _, time in of_group]
            filled.update((labels, time) for time in range(times[0], times[-1], self._asked.steps.width))
            self._check(len(filled))
        return filled

    def add(self, selection: Selection, result: SumsResult) -> None:
        """Add the sums of a selection's points. Raises ParameterInvalid."""
        keys = self._keys.pop(selection)
        if result.sums is None:
            return
        for number, exemplar in result.exemplars:
            keep_larger(self._exemplars, keys[number], exemplar)
        for labels, of_group in groupby(zip(keys, result.sums.tolist(), strict=True), lambda row: row[0][0]):
            points = [(time, *sums) for (_, time), sums in of_group if sums[1]]
            if points:
                self._count -= len(self._times[labels])
                self._times[labels].update(time for time, *_ in points)
                self._count += len(self._times[labels])
                self._parts[labels].append(_Part(np.array(points, np.int64), result.is_state))
        self._check(self._count)

    def largest(self) -> list[tuple[GroupLabels, Points]]:
        """Return the groups that are asked for, sorted by their labels, with points sorted by time."""
        sums = {labels: self._sums(labels) for labels in self._parts}
        totals = {labels: int(each[:, 1].sum()) for labels, each in sums.items()}
        chosen = sorted(totals, key=lambda labels: (-totals[labels], labels))[: self._asked.most or None]
        is_mean = self._asked.is_mean
        return [
            (
                labels,
                [
                    Point(
                        time, total / profiles if is_mean else float(total), self._exemplar_of(labels, time)
                    )
                    for time, total, profiles in sums[labels].tolist()
                ],
            )
            for labels in sorted(chosen)
        ]

    def _exemplar_of(self, labels: GroupLabels, time: int) -> PointExemplar | None:
        found = self._exemplars.get((labels, time))
        name = None if found is None else BlobName.parse(found.blob)
        if found is None or name is None:
            return None
        own = dict(name.series.labels)
        own[SERVICE_NAME] = name_of_service(name.series.service, own.get(SERVICE_NAME, ""))
        grouped = {*self._spelled.values(), *self._asked.by}
        return PointExemplar(
            uuid_of(name.identity.digest),
            found.span,
            found.trace,
            name.identity.time_nanos // 10**6,
            found.value,
            tuple((key, own[key]) for key in sorted(own) if key not in grouped and not is_hidden(key)),
        )

    def _sums(self, labels: GroupLabels) -> Int64s:
        """Return the times, the sums and the numbers of profiles of a group's points (n, 3)."""
        times = np.array(sorted(self._times[labels]), np.int64)
        sums = np.zeros((len(times), 3), np.int64)
        sums[:, 0] = times
        for points, is_state in self._parts[labels]:
            if is_state:
                # A service holds what it held between two of its own points, too.
                is_there = (times >= points[0, 0]) & (times <= points[-1, 0])
                last = np.searchsorted(points[:, 0], times[is_there], side="right") - 1
                sums[is_there, 1:] += points[last, 1:]
            else:
                sums[np.searchsorted(times, points[:, 0]), 1:] += points[:, 1:]
        return sums

    def _labels_of(self, series: BlobSeries) -> GroupLabels:
        """Return the labels by which a series is grouped; those that it doesn't have are left out."""
        own = dict(series.labels)
        values = self._fixed | {name: own.get(key, "") for name, key in self._spelled.items()}
        if SERVICE_NAME in self._asked.by:
            values[SERVICE_NAME] = name_of_service(series.service, own.get(SERVICE_NAME, ""))
        return tuple((name, value) for name, value in sorted(values.items()) if value)

    def _check(self, count: int) -> None:
        if count > self._most_points:
            raise ParameterInvalid(
                f"the answer would have at least {count:,} points; the limit is {self._most_points:,}"
                "; use a longer step, or group by fewer labels"
            )
