"""Thousands of made-up and flawed profiles, each list of them merged by Go and by ours: `make campaign`.

Where Go takes a profile, ours does; where Go refuses one, ours raises ProfileError; and the merge of what
is taken is Go's, byte for byte. What docs/differences.md says is different is told apart from what is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pprof_merge import (
    IncompatibleProfiles,
    LimitExceeded,
    Profile,
    ProfileError,
    decode,
    encode,
    inflate,
    merge,
)
from pprof_merge.collection import Collection

from tests.merge.differential import check_same
from tests.oracle.builder import World, seeded
from tests.oracle.mutation import mutate_bytes, mutate_fields
from tests.oracle.oracle import Oracle, RefusalError, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REAL = Path(__file__).parents[1] / "testdata" / "profiles"
# What can become of a case, in which the last two are differences that docs/differences.md gives reasons for.
MERGED = "merged"
REFUSED = "one refused, the rest merged"
INCOMPATIBLE = "incompatible"
OVER_A_LIMIT = "one over a limit of ours, the rest merged"
OTHER_ORDER = "sample types in an order that Go doesn't merge"


class Case(NamedTuple):
    """Profiles to merge; `kind` says how they were made."""

    kind: str
    profiles: list[bytes]


class DifferenceError(Exception):
    """Go and ours don't agree; in words, how."""


def cases(random: Random, real: Sequence[bytes]) -> Iterator[Case]:
    """Without end. Few are made of real profiles, bare protobuf, which take Go ten times as long."""
    mutations = {"bytes": mutate_bytes, "fields": mutate_fields}
    while True:
        world = World(random, empty_strings=random.randrange(2) == 0)
        made = [world.profile() for _ in range(1 + random.randrange(4))]
        kind = random.choice(["whole", "bytes", "fields", "fields"])
        if kind == "whole":
            yield Case("made-up", made)
        elif random.randrange(8):
            made[0] = mutations[kind](random, made[0])
            yield Case(f"made-up, flawed {kind}", made)
        else:
            first, second = random.choice(real), random.choice(real)
            yield Case(f"real, flawed {kind}", [mutations[kind](random, first), second])


def check(case: Case, oracle: Oracle) -> str:
    """What became of the case: one of the words above. Raises DifferenceError."""
    taken, outcome = _taken(case.profiles, oracle)
    _check_collection(case.profiles, taken)
    if not taken:
        return outcome
    taken.sort(key=lambda pair: (pair[1].header.time_nanos, pair[1].digest))
    try:
        # Go loses labels that say nothing when it writes; ours do when they are read.
        theirs = oracle.merge([oracle.rewrite(profile) for profile, _ in taken])
    except RefusalError as error:
        return _refused(str(error), [profile for _, profile in taken])
    try:
        ours = encode(merge(profile for _, profile in taken))
        check_same(ours, theirs)
    except (ProfileError, AssertionError) as error:
        raise DifferenceError(f"Go merges them; ours: {error}") from error
    return outcome


def _taken(profiles: Sequence[bytes], oracle: Oracle) -> tuple[list[tuple[bytes, Profile]], str]:
    """What both take, and a word for the rest."""
    taken, outcome = [], MERGED
    for data in profiles:
        refusal = oracle.refusal(data)
        try:
            profile = decode(data)
        except LimitExceeded:
            outcome = OVER_A_LIMIT
        except ProfileError as error:
            outcome = REFUSED
            if not refusal:
                raise DifferenceError(f"Go takes it; ours: {error}") from error
        else:
            if refusal:
                raise DifferenceError(f"ours takes it; Go: {refusal}")
            taken.append((data, profile))
    return taken, outcome


def _refused(words: str, profiles: list[Profile]) -> str:
    """Go doesn't merge them: neither do ours, unless it is for the order of the sample types."""
    try:
        merge(profiles)
    except IncompatibleProfiles:
        return INCOMPATIBLE
    types = [profile.header.sample_types for profile in profiles]
    if len({tuple(sorted(each)) for each in types}) == 1 and len(set(types)) > 1:
        return OTHER_ORDER
    raise DifferenceError(f"ours merges them; Go: {words}")


def _check_collection(profiles: Sequence[bytes], taken: list[tuple[bytes, Profile]]) -> None:
    """A collection takes what `decode` does, whatever comes beside it, and merges it to the same bytes."""
    one_by_one, together = Collection(), Collection()
    for data in profiles:
        try:
            one_by_one.add(data)
        except ProfileError:
            continue
    refused = [isinstance(result, ProfileError) for result in together.extend(profiles)]
    if len(one_by_one) != len(taken) or len(together) != len(taken) or refused.count(False) != len(taken):
        raise DifferenceError("a collection takes other profiles than `decode`")
    try:
        ours = encode(merge(profile for _, profile in taken))
    except ProfileError:
        return
    for collection in (one_by_one, together):
        if encode(collection.merge()) != ours:
            raise DifferenceError("a collection's merge is another one")


def real_profiles(folder: Path = REAL) -> list[bytes]:
    """Small ones, bare protobuf."""
    profiles = [inflate(file.read_bytes()) for file in sorted(folder.rglob("*.gz"))]
    return [profile for profile in profiles if len(profile) < 64 << 10]


def main() -> int:
    """Runs the campaign; exit status 1 if there was a difference, whose profiles are kept in a folder."""
    described = argparse.ArgumentParser(prog="make campaign ARGS=", description=__doc__)
    described.add_argument("--count", type=int, default=10_000)
    described.add_argument("--seed", type=int, default=1)
    options = described.parse_args()
    outcomes: Counter[str] = Counter()
    differences: Counter[str] = Counter()
    kept = Path(tempfile.mkdtemp(prefix="campaign-"))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as oracle:
        all_cases = cases(seeded(options.seed), real_profiles())
        for number, case in enumerate(islice(all_cases, options.count), start=1):
            try:
                outcomes[f"{case.kind}: {check(case, oracle)}"] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a difference
                words = f"{type(error).__name__}: {error}"[:300]
                differences[words] += 1
                for which, profile in enumerate(case.profiles):
                    (kept / f"{number:05}-{which}").write_bytes(profile)
                print(f"{kept}/{number:05}-*: {case.kind}: {words}", flush=True)  # noqa: T201
            if number % 1000 == 0:
                print(f"{number} in {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
    for words, count in [*outcomes.most_common(), *differences.most_common()]:
        print(f"{count:6} {words}")  # noqa: T201
    print(f"{sum(differences.values())} differences; seed {options.seed}")  # noqa: T201
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
