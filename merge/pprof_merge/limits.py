"""Every limit on the size of one profile, in one place; `decode` enforces them."""

from typing import NamedTuple, Self

from pprof_merge.errors import LimitExceeded


class Limits(NamedTuple):
    """Upper bounds on one profile. A profile over a bound raises `LimitExceeded`, which names the field.

    The defaults are about ten times what large Go services send (the default.pgo of Go's compiler inflates
    to 1.1 MB with 17,000 samples), and bound the memory and time that a hostile input can cost.
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
    # The length of any one string: outputs repeat a name for each frame that has it.
    name_bytes: int = 32 << 10
    # Over all samples: labels, and locations in stacks.
    labels: int = 500_000
    frames: int = 2_000_000
    # Over all locations.
    lines: int = 1_000_000
    # Locations in one sample's stack.
    stack_depth: int = 10_000
    # Messages within one record: the labels of a sample, or the lines of a location.
    nested_messages: int = 250
    # Fields that the schema doesn't have, and those of the header, packed comments one by one.
    irregular_fields: int = 100_000

    def check(self, limit: str, actual: int, where: str = "") -> None:
        """Raise LimitExceeded if `actual` is over the limit named `limit`."""
        allowed: int = getattr(self, limit)
        if actual > allowed:
            raise LimitExceeded(limit, allowed, where)

    @classmethod
    def none(cls) -> Self:
        """Return limits without bounds, for profiles from a trusted source."""
        return cls._make([1 << 62] * len(cls._fields))
