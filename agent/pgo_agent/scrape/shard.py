"""Which targets are whose, and when: decided by a target's name alone, so no agent need know of another."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Self


@dataclass(frozen=True, slots=True)
class Shard:
    """The part `index`, from 0, of `count` into which a fleet is parted.

    A target stays in its part, whatever others come and go.
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of "2/5", which is the third of five. Raises ValueError."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            raise ValueError(f"not INDEX/COUNT, with an index from 0 to COUNT - 1: {text!r}")
        return cls(int(index), int(count))

    def __contains__(self, name: str) -> bool:
        return int(_fraction(name, b"shard") * self.count) == self.index


def next_moment(name: str, every: float, now: float) -> float:
    """When a target is to be scraped next, after `now`: once in each `every` seconds, at a moment of its own.

    Rounds begin at the multiples of `every`. With the clock of all agents, the moment outlives them.
    """
    moment = _fraction(name, b"moment") * every
    begun = now // every * every + moment
    return begun if begun > now else begun + every


def _fraction(name: str, purpose: bytes) -> float:
    """From 0 to 1, evenly spread over names; that of one purpose says nothing of that of another."""
    digest = blake2b(name.encode(), digest_size=6, person=purpose).digest()
    return int.from_bytes(digest) / (1 << 48)
