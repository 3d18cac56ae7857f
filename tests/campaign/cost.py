"""Cost: a search for the request, or the few requests, of bounded size that cost a server most.

It begins with ordinary requests of each protocol, route and page, changes how often their parts come, what
texts and numbers are in them, and crosses the costliest. One server answers them. These are faults: more CPU
time in its workers or in the process that serves, a longer turn of the event loop, or more memory than the
bounds below. A fault is measured twice, reduced to the counts that bring it about, and kept.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.campaign.cost_changes import Room, Variant, change, grown, variants
from tests.campaign.cost_parts import Part, Sent, TooLarge, at, changed, counts, places, sent
from tests.campaign.cost_seeds import Seed, seeds
from tests.campaign.cost_server import Costs, MeasuredServer
from tests.campaign.report import Findings
from tests.oracle.builder import seeded

# The bounds for requests of up to so many bytes together, and for larger ones within the limits.
SMALL_BYTES = 8 << 10
LARGE_BYTES = 1 << 20
SMALL_SECONDS = 0.2
LARGE_SECONDS = 0.5
MOST_TURN = 0.05
MOST_MEMORY = 100 << 20
# What still runs after so much CPU time is stopped: it is a fault, however long it would take.
_STOPPED_AFTER = 1.0
# The costliest of a target, which others are made from.
_KEPT = 12
# A count of a fault isn't reached again, so that the search finds others beside it.
_CEILING = 0.1
# Counts from which on a part may be what costs.
_MANY = 8
_MOST_REDUCTIONS = 6
_MEASURES = ("worker", "server", "turn", "memory")
# How a measure is shown.
_SHOWN: Mapping[str, Callable[[float], str]] = {
    "worker": lambda value: f"{value:.2f} s in workers",
    "server": lambda value: f"{value:.2f} s in the server",
    "turn": lambda value: f"a turn of {value * 1000:.0f} ms",
    "memory": lambda value: f"{value / (1 << 20):.0f} MiB",
}


class _Tried(NamedTuple):
    genome: Part
    requests: list[Sent]
    costs: Costs

    @property
    def size(self) -> int:
        return sum(len(each.content) for each in self.requests)

    def ratio(self, measure: str) -> float:
        """Return a cost as a share of its bound."""
        cost: float = getattr(self.costs, measure)
        return cost / _bound(measure, self.size)

    @property
    def worst(self) -> str:
        """The measure whose bound it is closest to, or furthest beyond."""
        return max(_MEASURES, key=self.ratio)

    def __str__(self) -> str:
        costs = self.costs
        told = (
            f"{'' if costs.has_ended else 'over '}{costs.worker:.2f} s in workers,"
            f" {costs.server:.2f} s in the server, a turn of {costs.turn * 1000:.0f} ms,"
            f" {costs.memory / (1 << 20):.0f} MiB"
        )
        return f"{told}; {self.size:,} bytes, answered with {costs.status or 'nothing'}"


def _bound(measure: str, size: int) -> float:
    if measure in {"worker", "server"}:
        return SMALL_SECONDS if size <= SMALL_BYTES else LARGE_SECONDS
    return MOST_TURN if measure == "turn" else MOST_MEMORY


class Search:
    """The search from one seed: `worst` has the costliest requests, by measure."""

    def __init__(self, seed: Seed, found: list[Mapping[str, int]], random: Random) -> None:
        self.name, self.seed, self.weight = seed.name, seed.requests, seed.weight
        self.worst: dict[str, _Tried] = {}
        # By the counts that have grown most in them: so many kinds of requests are kept.
        self.best: dict[frozenset[str], _Tried] = {}
        self.trying: Variant | None = None
        self.faults = 0
        self.found = found
        self._counts, self._random = counts(seed.requests), random
        self.is_warm_on = 0
        # Whether the ordinary requests are larger than the small ones already.
        self.is_large = False
        self.untried = variants(seed.requests, random)
        self._variants = len(self.untried)

    @property
    def interest(self) -> float:
        """How often to go on: more while much of the seed is untried, or costs are close to their bounds."""
        closest = max((each.ratio(each.worst) for each in self.best.values()), default=0.0)
        untried = len(self.untried) / max(self._variants, 1)
        return self.weight * (1 + 4 * min(max(closest, untried), 1.0)) / math.sqrt(1 + self.faults)

    def note(self, tried: _Tried) -> None:
        """Keep what is among the costliest."""
        self.is_large |= tried.genome is self.seed and tried.size > SMALL_BYTES
        for measure in _MEASURES:
            if measure not in self.worst or tried.ratio(measure) > self.worst[measure].ratio(measure):
                self.worst[measure] = tried
        self._keep(tried)
        if self.trying and tried.costs.status >= 400 and self.trying.less == 1:
            # So many were refused; perhaps fewer aren't.
            self.untried.insert(0, self.trying._replace(less=self._random.choice((4, 16, 64, 256))))

    def costly(self, random: Random) -> Part:
        """Return one of the costliest requests, more often one that is closer to its bound."""
        kept = [*self.best.values()]
        weights = [0.05 + min(each.ratio(each.worst), 1.0) for each in kept]
        return random.choices(kept, weights)[0].genome

    def _keep(self, tried: _Tried) -> None:
        if self.has_found(tried.genome):
            return
        key = self._grown_most(tried.genome)
        if key not in self.best or tried.ratio(tried.worst) > self.best[key].ratio(tried.worst):
            self.best[key] = tried
        if len(self.best) > _KEPT:
            del self.best[min(self.best, key=lambda each: self.best[each].ratio(self.best[each].worst))]

    def forget(self) -> None:
        """Keep no request of a fault that is known."""
        self.best = {key: each for key, each in self.best.items() if not self.has_found(each.genome)}

    def _grown_most(self, genome: Part) -> frozenset[str]:
        factors = {path: count / max(self._counts.get(path, 1), 1) for path, count in counts(genome).items()}
        return frozenset(
            sorted((path for path in factors if factors[path] > 3), key=lambda path: -factors[path])[:2]
        )

    def has_found(self, genome: Part) -> bool:
        """Return whether a request is that of a fault that is known, for its counts."""
        found = counts(genome, is_rough=True)
        return any(
            all(found.get(path, 0) >= count * _CEILING for path, count in known.items())
            for known in self.found
        )


class Campaign:
    """The searches from all seeds on one server."""

    def __init__(self, random: Random, server: MeasuredServer, scratch: Path, end: float) -> None:
        self.findings = Findings()
        self.tried = 0
        self._random, self._server, self._scratch, self.end = random, server, scratch, end
        self._began = time.monotonic()
        self._looked_at: Counter[str] = Counter()

    def run(self, searches: Sequence[Search]) -> None:
        """Search until the end."""
        while time.monotonic() < self.end:
            (search,) = self._random.choices(searches, [each.interest for each in searches])
            self.step(search, searches)

    def step(self, search: Search, searches: Sequence[Search]) -> None:
        genome = self._next(search, searches)
        if genome is None or search.has_found(genome):
            return
        tried = self.measured(search, genome)
        if tried is None:
            return
        self.tried += 1
        if tried.ratio(tried.worst) > 1:
            self._confirm(search, tried)
        else:
            search.note(tried)

    def _next(self, search: Search, searches: Sequence[Search]) -> Part | None:
        """Return a variant of the seed that isn't tried, or one of the costliest, changed."""
        random, search.trying = self._random, None
        if not search.best:
            return search.seed
        room = Room(LARGE_BYTES if search.is_large or random.randrange(3) == 0 else SMALL_BYTES, self._size)
        if search.untried and random.randrange(3):
            # What is like others that were tried elsewhere comes later.
            search.untried.sort(key=lambda each: -self._looked_at[each.likeness])
            search.trying = variant = search.untried.pop()
            self._looked_at[variant.likeness] += 1
            return grown(search.seed, variant, room)
        others = [each for each in searches if each.best]
        donor = search if random.randrange(3) else random.choice(others)
        return change(search.costly(random), donor.costly(random), room, random)

    def _size(self, genome: Part) -> int | None:
        requests = self._written(genome)
        return None if requests is None else sum(len(each.content) for each in requests)

    def _written(self, genome: Part) -> list[Sent] | None:
        try:
            return [sent(each, self._server.place) for each in genome.parts]
        except TooLarge:
            return None

    def measured(self, search: Search, genome: Part) -> _Tried | None:
        """Return what requests cost; None if they are too large to be written."""
        self._server.next_place()
        if search.is_warm_on != self._server.starts:  # what is done once in a process isn't the request's
            self._server.costs([each.content for each in self._written(search.seed) or ()], _STOPPED_AFTER)
            self._server.next_place()
            search.is_warm_on = self._server.starts
        requests = self._written(genome)
        if requests is None:
            return None
        return _Tried(
            genome, requests, self._server.costs([each.content for each in requests], _STOPPED_AFTER)
        )

    def _confirm(self, search: Search, first: _Tried) -> None:
        """Measure a fault again, reduce it, keep it, and don't look for it any more."""
        measure = first.worst
        again = self.measured(search, first.genome)
        if again is None or again.ratio(measure) <= 1:
            search.note(again or first)
            return
        search.note(again)
        least = self._reduced(search, again, measure)
        search.faults += 1
        search.found.append(self._grown(search, least, is_rough=True) or {"": 1})
        search.forget()
        number = len(self.findings.faults) + 1
        files = []
        for index, (each, request) in enumerate(zip(again.requests, again.genome.parts, strict=True), 1):
            file = self._scratch / f"fault-{number}-{index}.http"
            file.write_bytes(each.content)
            files.append(_as_command(file, request, each))
        grown_ = self._grown(search, least, is_rough=False).items()
        where = ", ".join(f"{count:,} of {path}" for path, count in grown_) or "no count"
        told = f"{search.name}: {measure}: {again}; by {where}"
        self.findings.fault(told, "; then ".join(files))
        print(f"  {time.monotonic() - self._began:4.0f} s  {told}", flush=True)  # noqa: T201

    @staticmethod
    def _grown(search: Search, tried: _Tried, *, is_rough: bool) -> dict[str, int]:
        """Return the counts that are many, and more than in the seed; all that are many if there are none."""
        before = counts(search.seed, is_rough=is_rough)
        found = counts(tried.genome, is_rough=is_rough)
        found = {path: count for path, count in found.items() if count >= _MANY}
        return {path: count for path, count in found.items() if count > 2 * before.get(path, 0)} or found

    def _reduced(self, search: Search, tried: _Tried, measure: str) -> _Tried:
        """Return requests with smaller counts that are still a fault by a measure."""
        left = _MOST_REDUCTIONS
        for divisor in (1 << 40, 8):
            for where, part in list(places(tried.genome)):
                times = at(tried.genome, where).times
                while times >= _MANY and left and time.monotonic() < self.end:
                    times //= divisor
                    smaller = changed(tried.genome, where, replace(part, times=max(times, 1)))
                    left -= 1
                    found = self.measured(search, smaller)
                    if found is None or found.ratio(measure) <= 1:
                        break
                    tried = found
        return tried

    def report(self, searches: Sequence[Search]) -> None:
        """Note the costliest requests of each target."""
        self.findings.figure("requests tried", f"{self.tried:,}, {self._server.starts} servers")
        for search in searches:
            told = (
                f"{_SHOWN[measure](getattr(worst.costs, measure))} of {worst.size:,} bytes"
                for measure, worst in search.worst.items()
            )
            self.findings.figure(search.name, "; ".join(told) or "not tried")


def _as_command(file: Path, request: Part, content: Sent) -> str:
    """Return a command that sends a request, and what it is."""
    target = content.content.split(b" ", 2)[1].decode(errors="replace")
    chunks = f" in {content.chunks:,} chunks" if content.chunks else ""
    return (
        f"nc HOST PORT < {file} ({request.name} {target[:80]}, {len(content.body):,} bytes of body{chunks})"
    )


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Search for `seconds`; see `report`."""
    random, end = seeded(seed), time.monotonic() + seconds
    with MeasuredServer(scratch) as server:
        campaign = Campaign(random, server, scratch, end)
        families: dict[str, list[Mapping[str, int]]] = {}
        searches = [
            Search(seed, families.setdefault(seed.family, []), random) for seed in seeds(server.description())
        ]
        campaign.run(searches)
        campaign.report(searches)
    return campaign.findings
