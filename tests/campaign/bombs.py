"""Bombs: a search for small inputs that cost much; it keeps what is worse than what it had.

Each evaluation is a child process with a cap on memory and CPU time. The badness of an input is the memory,
the output or the CPU time that it takes for each of its bytes; the worst inputs of each kind are kept as
files. These are faults: taking more than the cap, more output than `MOST_OUTPUT`, a crash, and an
undocumented error.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.campaign.bomb_inputs import MOST_BYTES, Genes
from tests.campaign.bomb_targets import DOCUMENTED, TARGETS, Target, warm_up
from tests.campaign.capped import Cap, Cost, cost_of
from tests.campaign.report import Findings
from tests.oracle.builder import seeded

# A worker may take three times the size of its output, besides what it decoded.
CAP = Cap(memory=1 << 30, cpu=60)
MOST_OUTPUT = 256 << 20
# The cost of a smaller input doesn't come from its bytes.
_FEWEST_BYTES = 4 << 10
# Many combinations of genes make too large an input.
_MOST_DRAWS = 100
_MOST_SUGGESTED = 4
_MEASURES = ("memory", "output", "cpu")


class _Tried(NamedTuple):
    genes: Genes
    content: bytes
    cost: Cost

    def worth(self, measure: str) -> float:
        """Return the cost for each byte of the input."""
        cost: float = getattr(self.cost, measure)
        return cost / max(len(self.content), _FEWEST_BYTES)


class Search:
    """A search among the inputs of one target; it keeps the worst input for each measure."""

    def __init__(self, name: str, target: Target, random: Random, folder: Path, cap: Cap = CAP) -> None:
        self.name, self.target = name, target
        self.worst: dict[str, _Tried] = {}
        self.faults: dict[str, tuple[str, Path]] = {}
        # Inputs that were far worse than all before them in another search, to try here.
        self.suggested: deque[Genes] = deque(maxlen=_MOST_SUGGESTED)
        self.outcomes: Counter[str] = Counter()
        self._random, self._folder, self._cap = random, folder, cap
        folder.mkdir(parents=True)

    def step(self, others: Mapping[str, Search]) -> None:
        """Try another input: a new one, or one close to the worst of this search or of a similar one."""
        alike = [each for each in others.values() if each.target.kind is self.target.kind]
        like = [each for each in alike if each.worst]
        for _ in range(_MOST_DRAWS):
            genes = self._genes(like)
            content = self.target.kind.make(genes)
            if content and len(content) <= MOST_BYTES:
                if self._try(_Tried(genes, content, self._cost(content))):
                    for each in alike:
                        if each is not self:
                            each.suggested.append(genes)
                return

    def _genes(self, like: Sequence[Search]) -> Genes:
        random, kind = self._random, self.target.kind
        if not self.worst:
            return kind.harmless
        if self.suggested and random.randrange(3) == 0:
            return self.suggested.popleft()
        if random.randrange(6) == 0:
            return kind.any(random)
        own = self if random.randrange(4) else random.choice(like)
        other = random.choice(like)
        first, second = (random.choice([*each.worst.values()]).genes for each in (own, other))
        return kind.changed(first, second, random)

    def _cost(self, content: bytes) -> Cost:
        folder = self._folder / "work"
        folder.mkdir()
        try:
            cost = cost_of(lambda: self.target.work(content, folder), DOCUMENTED, self._cap)
        finally:
            shutil.rmtree(folder)
        if not cost.fault and cost.output > MOST_OUTPUT:
            return cost._replace(fault=f"more than {MOST_OUTPUT >> 20} MiB of output")
        return cost

    def _try(self, tried: _Tried) -> bool:
        """Keep an input if it is the worst; return whether it is far worse than all before it."""
        is_far_worse = False
        self.outcomes[tried.cost.refusal or "taken"] += 1
        for measure in _MEASURES:
            before = self.worst[measure].worth(measure) if measure in self.worst else -1.0
            if tried.worth(measure) > before:
                is_far_worse |= tried.worth(measure) > 2 * before >= 0
                self.worst[measure] = tried
                (self._folder / measure).write_bytes(tried.content)
        if fault := tried.cost.fault:
            # Faults are told apart by their place, and not by the numbers in their messages.
            key = re.sub(r"\d{3,}|'.*'", "…", fault)
            if key not in self.faults:
                file = self._folder / f"fault-{len(self.faults)}"
                file.write_bytes(tried.content)
                self.faults[key] = fault, file
        return is_far_worse

    def report(self, findings: Findings) -> None:
        """Add the results to the findings."""
        for measure, unit, scale in (("memory", "MiB", 1 << 20), ("output", "MiB", 1 << 20), ("cpu", "s", 1)):
            if worst := self.worst.get(measure):
                cost: float = getattr(worst.cost, measure)
                ratio = f", {worst.worth(measure):,.0f} a byte" if measure != "cpu" else ""
                size = f"{len(worst.content):,} bytes{', refused' if worst.cost.refusal else ''}"
                findings.figure(f"{self.name}: {measure}", f"{cost / scale:,.1f} {unit} of {size}{ratio}")
        for fault, file in self.faults.values():
            findings.fault(f"{self.name}: {fault}", file)


def run(
    seed: int, seconds: float, scratch: Path, targets: Mapping[str, Target] = TARGETS, cap: Cap = CAP
) -> Findings:
    """Search all targets in turn for `seconds`; see `report`."""
    random = seeded(seed)
    searches = {
        name: Search(name, target, random, scratch / re.sub(r"\W+", "-", name), cap)
        for name, target in targets.items()
    }
    warm_up(scratch / "warm")
    tries, end = 0, time.monotonic() + seconds
    for name, search in cycle(searches.items()):
        if time.monotonic() >= end:
            break
        # Inputs from clients are tried more often than those from others.
        if name.startswith("pprof") or random.randrange(4) == 0:
            search.step(searches)
            tries += 1
    findings = Findings()
    findings.figure("inputs tried", tries)
    for search in searches.values():
        search.report(findings)
    return findings
