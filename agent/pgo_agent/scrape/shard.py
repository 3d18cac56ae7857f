"""Decide which agent scrapes a target, and when, from the target's name alone.

Agents therefore need not know of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Self


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard number `index` (from 0) of a fleet that is split into `count` shards.

    A target stays in its shard, whichever other targets come and go. `name in shard` tells whether a target
    is in it.
    """

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that text such as "2/5" (the third of five) names. Raises ValueError."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal() and int(index) < int(count)):
            raise ValueError(f"not INDEX/COUNT, with an index from 0 to COUNT - 1: {text!r}")
        return cls(int(index), int(count))

    def __contains__(self, name: str) -> bool:
        return int(_fraction(name, b"shard") * self.count) == self.index


def next_scrape_time(name: str, every: float, now: float) -> float:
    """Return the first time after `now` (s since 1970) at which a target is to be scraped.

    Rounds begin at multiples of `every` seconds, and each target has its own offset within a round. Because
    all agents use the same clock, a target keeps its times when an agent restarts or another takes over.
    """
    offset = _fraction(name, b"moment") * every
    in_this_round = now // every * every + offset
    return in_this_round if in_this_round > now else in_this_round + every


def _fraction(name: str, purpose: bytes) -> float:
    """Return a number from 0 to 1, spread evenly over names and independent for each purpose."""
    digest = blake2b(name.encode(), digest_size=6, person=purpose).digest()
    return int.from_bytes(digest) / (1 << 48)
