"""Cost: a search for the request, or the few requests, of bounded size that cost a server most.

It begins with ordinary requests of each protocol, route and page, changes how often their parts come, what
texts and numbers are in them, and crosses the costliest. One server answers them. These are faults: more CPU
time in its workers or in the process that serves, a longer turn of the event loop, or more memory than the
bounds below. A fault is measured twice, and if it isn't clearly one a
third time on a new server, reduced to the counts that bring it about, and kept. The bounds are for a quick
machine that does nothing else; what a fault costs is divided by how much slower this one is then.
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

from tests.campaign.cost_changes import MOST_FACTOR, Knob, Room, Turned, change, grown, knobs, pairs
from tests.campaign.cost_parts import Part, Sent, TooLarge, at, changed, counts, places, sent
from tests.campaign.cost_seeds import Seed, seeds
from tests.campaign.cost_server import Costs, MeasuredServer
from tests.campaign.report import Findings
from tests.cpu_meter import times_slower
from tests.oracle.builder import seeded

# The bounds for requests of up to so many bytes together, and for larger ones within the limits.
SMALL_BYTES = 8 << 10
LARGE_BYTES = 1 << 20
SMALL_SECONDS = 0.2
LARGE_SECONDS = 0.5
MOST_TURN = 0.05
MOST_MEMORY = 100 << 20
# What still takes CPU time after so many seconds of it is stopped, with the server.
_STOPPED_AFTER = 3.0
# What is less far beyond its bound than so many times is measured once more, on a new server.
_CLEARLY = 1.5
# The costliest of a target, which others are made from.
_KEPT = 12
# A count of a fault isn't reached again, so that the search finds others beside it.
_CEILING = 0.1
# Counts from which on a part may be what costs.
_MANY = 8
_MOST_REDUCTIONS = 6
# Most are tried with this share of the bytes before compression, and with all if they cost as large a share
# of a bound: what costs more than it weighs shows there, too.
_SMALL_SHARE = 0.05
# The share of requests that are the costliest ones, changed at random, while there are others to try.
_RANDOM_SHARE = 0.2
# The share that turns one knob further, while there are pairs.
_LATER_SHARE = 0.2
# What refuses a request is a status from here on, and then so many times less is tried.
_REFUSED = 400
_LESS = 8
# More faults than that aren't looked for: each is kept as a file.
_MOST_FAULTS = 200
# The kinds of knobs that are tried first. In heads there is little else than signs.
_STRUCTURES = {"part", "alike"}
_MEASURES = ("worker", "server", "turn", "memory")
# How the costliest of a measure is shown, with its bytes.
_SHOWN: Mapping[str, Callable[[float, int], str]] = {
    "worker": lambda value, size: f"{value:.2f} s of {size:,} B",
    "server": lambda value, size: f"{value:.2f} s of {size:,} B",
    "turn": lambda value, size: f"{value * 1000:.0f} ms of {size:,} B",
    "memory": lambda value, size: f"{value / (1 << 20):.0f} MiB of {size:,} B",
}


class _Tried(NamedTuple):
    genome: Part
    size: int
    costs: Costs

    def ratio(self, measure: str) -> float:
        """Return a cost as a share of its bound."""
        cost: float = getattr(self.costs, measure)
        return cost / _bound(measure, self.size)

    @property
    def worst(self) -> str:
        """The measure whose bound it is closest to, or furthest beyond."""
        return max(_MEASURES, key=self.ratio)

    def on_a_quick_machine(self) -> _Tried:
        """Return what it would cost on a machine as quick as that of the bounds, which does nothing else."""
        costs, slower = self.costs, times_slower()
        times = {each: getattr(costs, each) / slower for each in ("worker", "server", "turn")}
        return self._replace(costs=costs._replace(**times))

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


class Family:
    """Faults, by counts, and costs of knobs, by likeness, that are the same for seeds that are read alike."""

    def __init__(self) -> None:
        self.faults: list[Mapping[str, int]] = []
        # The largest factor that isn't refused, and what share of a bound it cost beside the seed.
        self.turned: dict[str, int] = {}
        self.costs: dict[str, float] = {}
        self.paired: set[frozenset[str]] = set()


def _likeness(pair: Sequence[Knob]) -> frozenset[str]:
    return frozenset(knob.likeness for knob in pair)


class Search:
    """The search from one seed: `worst` has the costliest requests, by measure.

    It turns each knob alone, as far as requests aren't refused; then pairs of them, those first that are
    close to one another or cost much alone; and meanwhile changes the costliest at random.
    """

    def __init__(self, seed: Seed, family: Family, random: Random) -> None:
        self.name, self.seed, self.family = seed.name, seed.requests, family
        self.worst: dict[str, _Tried] = {}
        # By the counts that have grown most in them: so many kinds of requests are kept.
        self.best: dict[frozenset[str], _Tried] = {}
        self.faults = self.tried = 0
        self.spent = 0.0
        self._counts, self._random = counts(seed.requests), random
        self.is_warm_on = 0
        # Whether the ordinary requests are larger than the small ones already, and whether they are refused.
        self._is_large = self._is_refused = False
        self._ordinary = 0.0  # what share of a bound they cost
        self._knobs = knobs(self.seed)
        # The knobs alone that aren't tried, the last ones first: parts, then others and pairs in turn.
        shuffled = random.sample(self._knobs, len(self._knobs))
        shuffled.sort(key=lambda knob: knob.kind in _STRUCTURES)
        self._alone = [(knob, MOST_FACTOR) for knob in shuffled]
        self._pairs: list[tuple[Knob, Knob]] | None = None
        # What is turned now, by which factor, and in what share of the bytes; and what is to be turned more.
        self._trying: tuple[Turned, int, float] | None = None
        self._closer: list[Turned] = []
        # Knobs alone cost as much as they weigh, or little more: pairs may cost a multiple.
        self._later: list[Turned] = []
        self._weight = seed.weight * (1 + len(self._knobs))

    @property
    def is_turned(self) -> bool:
        """Whether the requests that are tried now are ordinary ones in which knobs alone were turned."""
        return self._trying is not None

    @property
    def share(self) -> float:
        """The share of the time that it has beside others: more while costs are close to their bounds."""
        closest = max((each.ratio(each.worst) for each in self.best.values()), default=0.0)
        untried = bool(self._alone) or self._pairs is None
        return self._weight * (1 + untried + 2 * min(closest, 1.0)) / math.pow(1 + self.faults, 0.25)

    def next(self, donor: Search, looked_at: Counter[str], size: Callable[[Part], int | None]) -> Part | None:
        """Return requests to try; None if the first that came to mind don't fit. `donor` is crossed with."""
        random, self._trying = self._random, None
        if not self.tried:
            return self.seed
        if self._later and self._pairs is not None and (not self._pairs or random.random() < _LATER_SHARE):
            self._closer.append(self._later.pop())
        is_closer = bool(self._closer)
        turned = self._closer.pop() if is_closer else None
        if turned is None and random.random() >= _RANDOM_SHARE:
            turned = self._next_turned(looked_at)
        if turned is None:
            most = LARGE_BYTES if self._is_large or random.randrange(3) == 0 else SMALL_BYTES
            room = Room(most, size, self.has_found, random.choice((1.0, _SMALL_SHARE)))
            return change(self._costly(), donor._costly(), room, random)
        room = Room(LARGE_BYTES, size, self.has_found, 1.0 if is_closer else _SMALL_SHARE)
        made = grown(self.seed, turned, room)
        if made is None:
            return None
        self._trying = turned, made[1], room.share
        return made[0]

    def _next_turned(self, looked_at: Counter[str]) -> Turned | None:
        known = self.family.turned
        while self._alone and (self._alone[-1][0].kind in _STRUCTURES or self._random.randrange(2)):
            # What is like others that were tried elsewhere comes later.
            self._alone.sort(key=lambda each: (each[0].kind in _STRUCTURES, -looked_at[each[0].likeness]))
            knob, most = self._alone.pop()
            looked_at[knob.likeness] += 1
            if knob.likeness not in known:
                return Turned((knob,), (most,))
        if self._pairs is None or not (self._pairs or self._alone):
            usable = [knob for knob in self._knobs if known.get(knob.likeness, 1) > 1]
            found = pairs(usable, self.family.costs, self._random)
            self._pairs = [pair for pair in found if _likeness(pair) not in self.family.paired]
        while self._pairs:
            pair = self._pairs.pop()
            factors = tuple(known.get(knob.likeness, 1) for knob in pair)
            if min(factors) > 1 and _likeness(pair) not in self.family.paired:
                self.family.paired.add(_likeness(pair))
                return Turned(pair, factors)
        return self._next_turned(looked_at) if self._alone else None

    def note(self, tried: _Tried) -> None:
        """Keep what is among the costliest, and what that says of the knobs that were turned."""
        if tried.genome is self.seed:
            self._is_large, self._is_refused = tried.size > SMALL_BYTES, tried.costs.status >= _REFUSED
            self._ordinary = tried.ratio(tried.worst)
        self.rank(tried)
        if self._trying:
            self._learn_of_knobs(*self._trying, tried)
        self._keep(tried)

    def _learn_of_knobs(self, turned: Turned, factor: int, share: float, tried: _Tried) -> None:
        ratio = tried.ratio(tried.worst)
        is_taken = tried.costs.status < _REFUSED or self._is_refused
        if share < 1 and ratio > self._ordinary + share:
            (self._closer if len(turned.knobs) > 1 else self._later).append(turned)
        if len(turned.knobs) > 1:
            return
        (knob,) = turned.knobs
        self.family.costs[knob.likeness] = (ratio - self._ordinary) / share
        if is_taken:
            self.family.turned[knob.likeness] = turned.most[0]
        elif factor >= _LESS:  # so many are refused; perhaps fewer aren't
            self._alone.append((knob, factor // _LESS))

    def rank(self, tried: _Tried) -> None:
        """Keep what is the costliest by a measure."""
        for measure in _MEASURES:
            if measure not in self.worst or tried.ratio(measure) > self.worst[measure].ratio(measure):
                self.worst[measure] = tried

    def _costly(self) -> Part:
        """Return one of the costliest requests, more often one that is closer to its bound."""
        kept = [*self.best.values()]
        if not kept:
            return self.seed
        weights = [0.05 + min(each.ratio(each.worst), 1.0) for each in kept]
        return self._random.choices(kept, weights)[0].genome

    def _keep(self, tried: _Tried) -> None:
        if self.has_found(tried.genome):
            return
        key = self._grown_most(tried.genome)
        if key not in self.best or tried.ratio(tried.worst) > self.best[key].ratio(tried.worst):
            self.best[key] = tried
        if len(self.best) > _KEPT:
            del self.best[min(self.best, key=lambda each: self.best[each].ratio(self.best[each].worst))]

    def learn(self, known: Mapping[str, int]) -> None:
        """Look no more for a fault that is known by these counts: turn what brings it about less far."""
        self.family.faults.append(known)
        self.faults += 1
        turned = self.family.turned
        if self._trying:
            for knob in self._trying[0].knobs:
                turned.setdefault(knob.likeness, self._trying[1])
        for knob in self._knobs:
            while (factor := turned.get(knob.likeness, 1)) > 1 and self.has_found(
                knob.turned(self.seed, factor)
            ):
                turned[knob.likeness] = factor // 2
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
            all(found.get(path, 0) >= max(count * _CEILING, _MANY) for path, count in known.items())
            for known in self.family.faults
        )


class Campaign:
    """The searches from all seeds on one server."""

    def __init__(self, random: Random, server: MeasuredServer, scratch: Path, end: float) -> None:
        self.findings = Findings()
        self._random, self._server, self._scratch, self.end = random, server, scratch, end
        self._began = time.monotonic()
        self._looked_at: Counter[str] = Counter()

    def run(self, searches: Sequence[Search]) -> None:
        """Search until the end, each time from the seed that had the least of its share of the time."""
        while time.monotonic() < self.end and len(self.findings.faults) < _MOST_FAULTS:
            self.step(min(searches, key=lambda each: each.spent / each.share), searches)

    def step(self, search: Search, searches: Sequence[Search]) -> None:
        """Try one more request of a search."""
        began = time.monotonic()
        donor = search if self._random.randrange(3) else self._random.choice(searches)
        genome = search.next(donor, self._looked_at, self._size)
        tried = None if genome is None else self.measured(search, genome)
        search.spent += time.monotonic() - began  # faults don't count: others may be beside them
        if tried is not None:
            search.tried += 1
            if tried.ratio(tried.worst) > 1:
                tried = self._confirmed(search, tried)
            if tried.ratio(tried.worst) > 1:
                self._keep_fault(search, tried)
            else:
                search.note(tried)

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
            ordinary = [each.content for each in self._written(search.seed) or ()]
            self._server.costs(ordinary, _STOPPED_AFTER)
            self._server.next_place()
            search.is_warm_on = self._server.starts
        requests = self._written(genome)
        if requests is None:
            return None
        size = sum(len(each.content) for each in requests)
        return _Tried(genome, size, self._server.costs([each.content for each in requests], _STOPPED_AFTER))

    def _confirmed(self, search: Search, first: _Tried) -> _Tried:
        """Return what a fault costs again and, unless it is clear, on a new server; the least of these."""
        measure, least = first.worst, first
        for is_new in (False, True):
            if is_new:
                self._server.stop()
            again = self.measured(search, first.genome)
            assert again is not None, "it was written before"
            least = min(least, again.on_a_quick_machine(), key=lambda each: each.ratio(measure))
            if not 1 < least.ratio(measure) < _CLEARLY:
                break
        return least

    def _keep_fault(self, search: Search, tried: _Tried) -> None:
        """Keep a fault with the counts that bring it about, and what sends it again."""
        measure = tried.worst
        search.rank(tried)
        least = tried if search.is_turned else self._reduced(search, tried, measure)
        search.learn(self._grown(search, least, is_rough=True) or {"": 1})
        number = len(self.findings.faults) + 1
        files = []
        for index, (request, each) in enumerate(
            zip(tried.genome.parts, self._written(tried.genome) or (), strict=True), 1
        ):
            file = self._scratch / f"fault-{number}-{index}.http"
            file.write_bytes(each.content)
            files.append(_as_command(file, request, each))
        grown_ = self._grown(search, least, is_rough=False).items()
        where = ", ".join(f"{count:,} of {path}" for path, count in grown_) or "no count"
        told = f"{search.name}: {measure}: {tried}; by {where}"
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
        """Note the costliest requests of each seed, by measure, and how many were tried."""
        tried = sum(search.tried for search in searches)
        self.findings.figure("requests tried", f"{tried:,} on {self._server.starts} servers")
        self.findings.figure("from", "    tried | " + " | ".join(map("{:^24}".format, _SHOWN)))
        for search in searches:
            told = [
                _SHOWN[measure](getattr(worst.costs, measure), worst.size)
                for measure, worst in search.worst.items()
            ]
            self.findings.figure(
                search.name, f"{search.tried:9,} | " + " | ".join(map("{:>24}".format, told))
            )


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
        families: dict[str, Family] = {}
        searches = [
            Search(seed, families.setdefault(seed.family, Family()), random)
            for seed in seeds(server.description())
        ]
        campaign.run(searches)
        campaign.report(searches)
    return campaign.findings
