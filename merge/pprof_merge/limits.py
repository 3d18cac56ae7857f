"""How large a profile may be: every limit, in one place."""

from __future__ import annotations

from typing import NamedTuple

from pprof_merge.errors import LimitExceeded


class Limits(NamedTuple):
    """Upper bounds on one profile; what exceeds one is refused with `LimitExceeded` by its name.

    The defaults leave an order of magnitude above what large Go services send (Go's own default.pgo
    inflates to 1.1 MB with 17,000 samples), and bound the memory and time that a hostile input costs.
    """

    compressed_bytes: int = 8 << 20
    inflated_bytes: int = 8 << 20
    gzip_members: int = 64
    sample_types: int = 100
    samples: int = 500_000
    locations: int = 500_000
    functions: int = 500_000
    mappings: int = 10_000
    strings: int = 500_000
    # Of one string, whatever it names: outputs repeat names as often as they are met.
    name_bytes: int = 32 << 10
    # Of all samples: their labels, and the locations of their stacks.
    labels: int = 500_000
    frames: int = 2_000_000
    # Of all locations.
    lines: int = 1_000_000
    stack_depth: int = 10_000
    # Messages within one record: the labels of a sample, the lines of a location.
    nested_messages: int = 250
    # Fields that are unknown, or in a layout that no known profiler writes: each is read by itself.
    irregular_fields: int = 100_000

    def check(self, limit: str, actual: int, where: str = "") -> None:
        """Raises LimitExceeded if `actual` is over the limit of that name."""
        allowed: int = getattr(self, limit)
        if actual > allowed:
            raise LimitExceeded(limit, allowed, where)

    @classmethod
    def none(cls) -> Limits:
        """No bounds, for profiles that one has made oneself."""
        return cls._make([1 << 62] * len(cls._fields))
