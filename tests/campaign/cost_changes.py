"""Changes of requests: counts that grow and shrink, alone and together, other numbers, signs and parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import NamedTuple

from tests.campaign.cost_parts import COUNTED, Part, Where, at, changed, places, texts


class Room(NamedTuple):
    """The most bytes that requests may have, and a function that returns their size; None if far more."""

    most: int
    size: Callable[[Part], int | None]

    def fits(self, genome: Part) -> bool:
        size = self.size(genome)
        return size is not None and size <= self.most


_FACTORS = (2, 4, 8, 16, 64, 256, 1024)
# Of what may fit: compressed sizes aren't quite proportional to counts.
_MARGIN = 0.9
_MOST_TIMES = 1 << 23
_SIGNS = (
    b"\\", b'"', b"'", b";", b",", b"=", b" ", b"a", b"0", b"%", b"&", b"{", b"}", b"(", b")", b"|", b".",
    b"*", b"+", b"?", b"/", b"[", b"]", b"<", b":", b"-", b"~", b"!", b"^", b"$", b"@", b"\xc3\xa9",
)  # fmt: skip
_NUMBERS = (0, 1, 2, 255, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)
# A head of more than 64 KiB is refused at once, and so is one header of more than 8 KiB.
_MOST_IN_HEADS, _MOST_IN_A_HEADER = 60 << 10, 8 << 10
# What there is one of.
_WHOLES = {"requests", "request", "query", "body", "gzip"}
_IN_BODIES = {"body", "chunks"}
_NUMBERS_KINDS = {"digits", *COUNTED}
# Changed rarely: with them changed, a request is another one, or is sent to nothing.
_FIXED_NAMES = {"path", "Authorization", "DD-API-KEY"}


class Variant(NamedTuple):
    """A part of a seed whose count is to grow, and a name that parts like it have in other seeds.

    It is to come as often as fits, or less often by a divisor. Or, if `alike` is a count, all parts are that
    come so often: they may refer to one another.
    """

    where: Where
    likeness: str
    less: int = 1
    alike: int = 0


def variants(seed: Part, random: Random) -> list[Variant]:
    """Return the parts of a seed whose counts may matter; those that are wholes of others come last."""
    signs: dict[tuple[object, ...], Variant] = {}
    others: dict[tuple[object, ...], Variant] = {}
    for where, part, path in _within(seed):
        if part.kind in {"text", "digits"}:
            if not part.text.isalnum():
                signs.setdefault((*path, part.text), Variant(where, f"{path[-1:]}{part.text!r}"))
        elif where and part.kind not in _WHOLES:
            others.setdefault((*path, part.kind), Variant(where, f"{path[-2:]}{part.kind}"))
    shuffled = [random.sample([*found.values()], len(found)) for found in (signs, others)]
    alike = sorted({part.times for _, part, _ in _within(seed) if part.times > 1})
    return [
        *shuffled[0],
        *shuffled[1],
        *(Variant((), f"alike {random.random()}", alike=times) for times in alike),
    ]


def _within(
    part: Part, where: Where = (), path: tuple[str, ...] = ()
) -> Iterator[tuple[Where, Part, tuple[str, ...]]]:
    """Yield the parts of a tree that aren't fixed, with where they are and the names around them."""
    yield where, part, path
    for index, each in enumerate(part.parts):
        if each.name not in _FIXED_NAMES:
            inner = path if each.kind in {"text", "digits"} else (*path, each.name or each.kind)
            yield from _within(each, (*where, index), inner)


def grown(genome: Part, variant: Variant, room: Room) -> Part | None:
    """Return requests in which parts come as often as fits, or less often by a divisor; None if none do."""
    where = variant.where

    def by(factor: int) -> Part:
        if variant.alike:
            return _scaled(genome, variant.alike, factor)
        return changed(genome, where, replace(part, times=max(part.times, 1) * factor))

    part = at(genome, where)
    kinds = {at(genome, where[:depth]).kind for depth in range(1, len(where) + 1)}
    is_in_body = bool(kinds & _IN_BODIES)
    power = 22 if is_in_body or variant.alike else 16
    while (size := room.size(by(1 << power))) is None and power:
        power -= 1
    factor = 1 << power
    most = room.most
    if not is_in_body and not variant.alike:
        is_in_a_header = "header" in kinds and part.kind != "header"
        most = min(most, _MOST_IN_A_HEADER if is_in_a_header else _MOST_IN_HEADS)
    if size is not None and size > most:
        factor = int(factor * most / size * _MARGIN)
    if factor <= variant.less or not room.fits(by(factor)):
        return None
    return by(factor // variant.less)


def change(genome: Part, other: Part, room: Room, random: Random) -> Part | None:
    """Return requests that differ from others a little, or have a part of `other`; None if none fits."""
    for _ in range(8):
        found = genome
        place = _place(genome, random) if random.randrange(5) == 0 else None
        if place is not None and (full := grown(genome, Variant(place[0], ""), room)) is not None:
            return full
        for _ in range(random.choice((1, 1, 2, 3))):
            found = random.choice(_CHANGES)(found, other, random) or found
        if found is not genome and room.fits(found):
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
