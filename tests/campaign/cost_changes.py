"""Changes of requests: counts that grow and shrink, alone and together, other numbers, signs and parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from operator import itemgetter
from random import Random
from typing import NamedTuple

from tests.campaign.cost_parts import (
    COUNTED,
    MOST_MADE,
    MOST_WRITTEN,
    Part,
    Where,
    at,
    changed,
    places,
    texts,
)


class Room(NamedTuple):
    """The most bytes of requests, a function that returns theirs (None if far more), and what is known.

    `share` is how much of what may be made before it is compressed they may have.
    """

    most: int
    size: Callable[[Part], int | None]
    is_known: Callable[[Part], bool]
    share: float = 1.0

    def may_fit(self, genome: Part) -> bool:
        """Return whether requests have so few bytes and parts, about, that they are worth a try."""
        is_small = genome.weight <= MOST_MADE * self.share and genome.pieces <= MOST_WRITTEN * self.share
        heads = (part for each in genome.parts for part in each.parts if part.kind not in _IN_BODIES)
        is_head = sum(part.weight * part.times for part in heads) <= _MOST_IN_HEADS * len(genome.parts)
        return is_small and is_head and not self.is_known(genome)

    def fits(self, genome: Part) -> bool:
        size = self.size(genome) if self.may_fit(genome) else None
        return size is not None and size <= self.most


_FACTORS = (2, 4, 8, 16, 64, 256, 1024)
# Of what may fit: compressed sizes aren't quite proportional to counts.
_MARGIN = 0.9
_MOST_TIMES = 1 << 23
_LEAST_FACTOR = 2
# How often requests are written to find out how large they may be.
_MOST_SIZES = 6
# So that crossed requests don't become trees of any size.
_MOST_PARTS = 2000
_SIGNS = (
    b"\\", b'"', b"'", b";", b",", b"=", b" ", b"a", b"0", b"%", b"&", b"{", b"}", b"(", b")", b"|", b".",
    b"*", b"+", b"?", b"/", b"[", b"]", b"<", b":", b"-", b"~", b"!", b"^", b"$", b"@", b"\xc3\xa9",
)  # fmt: skip
_NUMBERS = (0, 1, 2, 255, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
# A head of more than 64 KiB is refused at once.
_MOST_IN_HEADS = 60 << 10
# What there is one of.
_WHOLES = {"requests", "request", "query", "body", "gzip"}
_IN_BODIES = {"body", "chunks"}
_NUMBERS_KINDS = {"digits", *COUNTED}
# Changed rarely: with them changed, a request is another one, or is sent to nothing.
_FIXED_NAMES = {"path", "Authorization", "DD-API-KEY"}


class Knob(NamedTuple):
    """A number in requests that can grow: how often a part comes, or the number that it has.

    Or, if `alike` is a count, how often all parts come that come so often: they may refer to one another.
    Then `where` is the one request that has them, or empty.
    `likeness` is a name that knobs like it have in other seeds, for which the same holds within a family.
    """

    where: Where
    kind: str
    likeness: str
    alike: int = 0

    def turned(self, genome: Part, factor: int) -> Part:
        """Return requests in which it is larger by a factor."""
        if self.alike:
            return _scaled(genome, self.alike, factor)
        part = at(genome, self.where)
        if self.kind == "number":
            return changed(genome, self.where, replace(part, number=max(part.number, 1) * factor))
        return changed(genome, self.where, replace(part, times=max(part.times, 1) * factor))


class Turned(NamedTuple):
    """Knobs that are to be turned together as far as fits, each by no more than a factor."""

    knobs: tuple[Knob, ...]
    most: tuple[int, ...]

    def by(self, genome: Part, factor: int) -> Part:
        for knob, most in zip(self.knobs, self.most, strict=True):
            genome = knob.turned(genome, min(factor, most))
        return genome


# No factor is larger.
MOST_FACTOR = 1 << 22


def knobs(seed: Part) -> list[Knob]:
    """Return the knobs of requests, of parts with one path and one form only one."""
    found: dict[str, Knob] = {}
    for where, part, path in _within(seed):
        forms = []
        if part.kind in {"text", "digits"}:
            if not part.text.isalnum():
                forms.append(("sign", repr(part.text)))
            elif _is_in_body(seed, where):
                forms.append(("sign", "word"))
        elif where and part.kind not in _WHOLES:
            forms.append(("part" if part.is_repeated else "single", part.kind))
        if part.kind in _NUMBERS_KINDS:
            forms.append(("number", "number"))
        for kind, form in forms:
            likeness = "/".join((*path[1:], form))  # without the method
            found.setdefault(likeness, Knob(where, kind, likeness))
    alike: dict[int, set[Where]] = {}
    for where, part, _ in _within(seed):
        if part.times > 1:
            alike.setdefault(part.times, set()).add(where[:1])
    return [
        *found.values(),
        *(
            Knob(min(where) if len(where) == 1 else (), "alike", f"alike {times} {id(seed)}", times)
            for times, where in sorted(alike.items())
        ),
    ]


def pairs(alone: Sequence[Knob], costs: Mapping[str, float], random: Random) -> list[tuple[Knob, Knob]]:
    """Return pairs of knobs, those to try first at the end.

    These are close to one another in the tree, cost more alone (by likeness), or are counts of parts that
    refer to one another.
    """
    found = [(_promise(*pair, costs) + random.random(), pair) for pair in combinations(alone, 2)]
    return [pair for _, pair in sorted(found, key=itemgetter(0))[-_MOST_PAIRS:]]


_MOST_PAIRS = 3000
# In shares of a bound: many a count costs one alone.
_MOST_COST = 5.0
_OF_KIND = {"part": 0.0, "alike": 0.5, "single": -1.5, "sign": -2.0, "number": -1.5}


def _promise(one: Knob, other: Knob, costs: Mapping[str, float]) -> float:
    shared = 0
    for mine, its in zip(one.where, other.where, strict=False):
        if mine != its:
            break
        shared += 1
    # An alike knob is everywhere in its requests.
    far = 2 if one.alike or other.alike else len(one.where) + len(other.where) - 2 * shared
    # What is in the other multiplies its bytes, and so weighs what it costs.
    is_inside = not (one.alike or other.alike) and shared == min(len(one.where), len(other.where))
    closest = sum(min(costs.get(knob.likeness, 0.0), _MOST_COST) for knob in (one, other))
    # A request may read for each of its parts what another one has stored.
    is_across = bool(one.alike and other.alike and one.where and other.where and not shared)
    return _OF_KIND[one.kind] + _OF_KIND[other.kind] + closest - 0.5 * far - is_inside + is_across


def _within(
    part: Part, where: Where = (), path: tuple[str, ...] = ()
) -> Iterator[tuple[Where, Part, tuple[str, ...]]]:
    """Yield the parts of a tree that aren't fixed, with where they are and the names around them."""
    yield where, part, path
    for index, each in enumerate(part.parts):
        if each.name not in _FIXED_NAMES:
            inner = path if each.kind in {"text", "digits"} else (*path, each.name or each.kind)
            yield from _within(each, (*where, index), inner)


def grown(genome: Part, turned: Turned, room: Room) -> tuple[Part, int] | None:
    """Return requests with knobs turned as far as fits, and the factor; None if they can't be turned."""
    in_heads = any(not knob.alike and not _is_in_body(genome, knob.where) for knob in turned.knobs)
    most = min(room.most, _MOST_IN_HEADS) if in_heads else room.most
    factor = min(max(turned.most), MOST_FACTOR)
    while factor > 1 and not room.may_fit(turned.by(genome, factor)):
        factor //= 2
    for _ in range(_MOST_SIZES):
        if factor < _LEAST_FACTOR:
            return None
        found = turned.by(genome, factor)
        size = room.size(found)
        if size is not None and size <= most:
            return found, factor
        factor = factor // 2 if size is None else min(int(factor * most / size * _MARGIN), factor - 1)
    return None


def _is_in_body(genome: Part, where: Where) -> bool:
    return any(at(genome, where[:depth]).kind in _IN_BODIES for depth in range(1, len(where) + 1))


def change(genome: Part, other: Part, room: Room, random: Random) -> Part | None:
    """Return requests that differ from others a little, or have a part of `other`; None if none fits."""
    for _ in range(8):
        found = genome
        place = _place(genome, random) if random.randrange(5) == 0 else None
        if place is not None:
            full = grown(genome, Turned((Knob(place[0], "part", ""),), (MOST_FACTOR,)), room)
            if full is not None:
                return full[0]
        for _ in range(random.choice((1, 1, 2, 3))):
            found = random.choice(_CHANGES)(found, other, random) or found
        if found is not genome and sum(1 for _ in places(found)) < _MOST_PARTS and room.fits(found):
            return found
    return None


def _place(genome: Part, random: Random, kinds: set[str] | None = None) -> tuple[Where, Part] | None:
    """Return a part of some kinds and where it is: any, or one close to the root, which multiplies many."""
    if kinds is None and random.randrange(2):
        return _close_place(genome, random)
    every = [
        (where, part)
        for where, part, _ in _within(genome)
        if where and part.kind not in _WHOLES and (kinds is None or part.kind in kinds)
    ]
    if not every:
        return None
    # Parts that come often already are where the costs come from.
    weights = [1 + 4 * (part.times > 3) + 2 * (part.kind not in {"text", "digits"}) for _, part in every]
    return random.choices(every, weights)[0]


def _close_place(genome: Part, random: Random) -> tuple[Where, Part] | None:
    where: Where = ()
    part = genome
    while part.parts:
        inner = [index for index, each in enumerate(part.parts) if each.name not in _FIXED_NAMES]
        bodies = [index for index in inner if part.parts[index].kind == "body"]
        if not inner:
            break
        index = random.choice(bodies if bodies and random.randrange(4) else inner)
        where, part = (*where, index), part.parts[index]
        if part.kind not in _WHOLES and random.randrange(3) == 0:
            return where, part
    return (where, part) if part.kind not in _WHOLES else None


def _scale(genome: Part, _: Part, random: Random) -> Part | None:
    """Change the count of a part."""
    if (found := _place(genome, random)) is None:
        return None
    where, part = found
    factor = random.choice(_FACTORS)
    times = max(part.times, 1) * factor if random.randrange(3) else part.times // factor
    return changed(genome, where, replace(part, times=min(times, _MOST_TIMES)))


def _scale_alike(genome: Part, _: Part, random: Random) -> Part | None:
    """Change all counts that are the same: parts refer to one another."""
    alike = sorted({part.times for _, part, _ in _within(genome) if part.times > 1})
    if not alike:
        return None
    return _scaled(genome, random.choice(alike), random.choice(_FACTORS))


def _scaled(genome: Part, alike: int, factor: int) -> Part:
    for where, part in [*places(genome)]:
        if part.times == alike:
            genome = changed(genome, where, replace(part, times=min(alike * factor, _MOST_TIMES)))
    return genome


def _renumber(genome: Part, _: Part, random: Random) -> Part | None:
    """Change a number, or by how much it grows."""
    if (found := _place(genome, random, _NUMBERS_KINDS)) is None:
        return None
    where, part = found
    if random.randrange(3) == 0:
        return changed(genome, where, replace(part, step=random.choice((0, 1, part.step * 8))))
    number = random.choice((*_NUMBERS, part.number + 1, part.number * 8, part.number * 64))
    return changed(genome, where, replace(part, number=number))


def _add_sign(genome: Part, _: Part, random: Random) -> Part | None:
    """Put a sign beside a text."""
    if (found := _place(genome, random, {"text", "digits"})) is None:
        return None
    where, part = found
    sign = replace(texts(random.choice(_SIGNS))[0], times=random.choice((1, *_FACTORS)))
    return changed(genome, where, *random.choice(((part, sign), (sign, part), (sign,))))


def _number_texts(genome: Part, _: Part, random: Random) -> Part | None:
    """Put a running number after a text, so that it differs each time."""
    if (found := _place(genome, random, {"text"})) is None:
        return None
    where, part = found
    return changed(genome, where, part, Part("digits", "0", step=1))


def _repeat_several(genome: Part, _: Part, random: Random) -> Part | None:
    """Repeat several signs of a text together."""
    if (found := _place(genome, random, {"text", "digits"})) is None:
        return None
    *above, index = found[0]
    parent = at(genome, tuple(above))
    begin, end = max(index - random.randrange(3), 0), index + 1 + random.randrange(3)
    group = Part("all", "several", parent.parts[begin:end], times=random.choice(_FACTORS))
    return changed(
        genome, tuple(above), replace(parent, parts=(*parent.parts[:begin], group, *parent.parts[end:]))
    )


def _cross(genome: Part, other: Part, random: Random) -> Part | None:
    """Take a part of another request, in place of one like it or beside it."""
    found = _place(other, random)
    if found is None:
        return None
    alike = [
        (where, part)
        for where, part, _ in _within(genome)
        if (part.kind, part.name, part.field) == (found[1].kind, found[1].name, found[1].field) and where
    ]
    if not alike:
        return None
    where, part = random.choice(alike)
    return changed(genome, where, *((found[1],) if random.randrange(3) else (part, found[1])))


def _remove(genome: Part, _: Part, random: Random) -> Part | None:
    """Remove a part."""
    if (found := _place(genome, random)) is None:
        return None
    return changed(genome, found[0])


def _repack(genome: Part, _: Part, random: Random) -> Part | None:
    """Compress what isn't compressed, or the other way round."""
    if (found := _place(genome, random, {"gzip", "zstd"})) is None:
        return None
    where, part = found
    kind = random.choice(("all", "gzip", "zstd"))
    return changed(genome, where, replace(part, kind=kind))


_CHANGES = (
    _scale, _scale, _scale, _scale, _scale_alike, _scale_alike, _scale_alike, _renumber, _add_sign,
    _number_texts, _repeat_several, _cross, _cross, _remove, _repack,
)  # fmt: skip
