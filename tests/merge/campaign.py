"""An endless supply of generated and mutated profiles, each list of them merged by Go and by our engine.

If Go accepts a profile, so does ours; if Go refuses one, ours raises ProfileError; and the merge of the
accepted profiles is Go's, byte for byte. Differences that docs/differences.md documents are not failures.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pprof_merge import (
    Collection,
    LimitExceeded,
    Profile,
    ProfileError,
    decode,
    encode,
    inflate,
    merge,
)
from pprof_proto import profile_pb2 as protobuf

from tests.merge.differential import check_same
from tests.oracle.builder import World
from tests.oracle.mutation import mutate_bytes, mutate_fields
from tests.oracle.oracle import Oracle, RefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REAL = Path(__file__).parents[1] / "testdata" / "profiles"
# The outcomes of a case. The last three are differences that docs/differences.md explains.
MERGED = "merged"
REFUSED = "one refused, the rest merged"
INCOMPATIBLE = "incompatible"
OVER_A_LIMIT = "one over a limit of ours, the rest merged"
OTHER_ORDER = "sample types in an order that Go doesn't merge"
OTHER_COLUMNS = "merged, but for columns of inlined lines"


class Case(NamedTuple):
    """A list of profiles to merge; `kind` says how they were made."""

    kind: str
    profiles: list[bytes]


def cases(random: Random, real: Sequence[bytes]) -> Iterator[Case]:
    """Yield cases without end. Few use real profiles (bare protobuf), which take Go ten times as long."""
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
    """Return the outcome of the case, one of those above. Raises AssertionError if Go and ours differ."""
    taken, outcome = _taken(case.profiles, oracle)
    ours = _merge_of_ours(case.profiles, [profile for _, profile in taken])
    if not taken:
        return outcome
    taken.sort(key=lambda pair: (pair[1].header.time_nanos, pair[1].digest))
    try:
        # Go drops empty labels when it writes a profile, our decoder when it reads one.
        theirs = oracle.merge([oracle.rewrite(data) for data, _ in taken])
    except RefusalError as error:
        if not ours:
            return INCOMPATIBLE
        if _types_in_another_order([profile for _, profile in taken]):
            return OTHER_ORDER
        raise AssertionError(f"ours merges them; Go: {error}") from error
    if not ours:
        raise AssertionError("Go merges them; ours doesn't")
    if ours != theirs and _without_inner_columns(ours) == _without_inner_columns(theirs):
        return OTHER_COLUMNS
    check_same(ours, theirs)
    return outcome


def _taken(profiles: Sequence[bytes], oracle: Oracle) -> tuple[list[tuple[bytes, Profile]], str]:
    """Return the profiles that both accept, and the outcome for the rest."""
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
                raise AssertionError(f"Go takes it; ours: {error}") from error
        else:
            if refusal:
                raise AssertionError(f"ours takes it; Go: {refusal}")
            taken.append((data, profile))
    return taken, outcome


def _merge_of_ours(inputs: Sequence[bytes], taken: Sequence[Profile]) -> bytes:
    """Return our merge of the accepted profiles, empty if they have none.

    A collection that is given all inputs must have the same merge. It is also asked for a merge before the
    last input is added, and for a merge of the first profile alone.
    """
    collection = Collection()
    results = list(collection.extend(inputs[:-1]))
    if len(collection):
        _encoded(collection.merge)
    results += collection.extend(inputs[-1:])
    if sum(isinstance(result, int) for result in results) != len(taken):
        raise AssertionError("a collection takes other profiles than `decode`")
    merged = _encoded(lambda: merge(taken))
    if _encoded(collection.merge) != merged:
        raise AssertionError("a collection's merge is another one")
    if taken and _encoded(lambda: collection.merge([0])) != _encoded(lambda: merge(taken[:1])):
        raise AssertionError("a collection's merge of a part is another one")
    return merged


def _encoded(make: Callable[[], Profile]) -> bytes:
    """Return the profile as bare protobuf, empty if there is no merge."""
    try:
        return encode(make())
    except ProfileError:
        return b""


def _without_inner_columns(profile: bytes) -> bytes:
    parsed = protobuf.Profile.FromString(profile)
    for location in parsed.location:
        for line in location.line[:-1]:
            line.ClearField("column")
    return parsed.SerializeToString()


def _types_in_another_order(profiles: Sequence[Profile]) -> bool:
    types = {profile.header.sample_types for profile in profiles}
    return len(types) > 1 and len({tuple(sorted(each)) for each in types}) == 1


def real_profiles(folder: Path = REAL) -> list[bytes]:
    """Return the small real profiles, as bare protobuf."""
    profiles = [inflate(file.read_bytes()) for file in sorted(folder.rglob("*.gz"))]
    return [profile for profile in profiles if len(profile) < 64 << 10]
