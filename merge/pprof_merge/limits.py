"""Every limit on the size of one profile, or of a program, which `decode` and `Binary` enforce."""

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


class BinaryLimits(NamedTuple):
    """Upper bounds on a program, its sampled functions, and what reads them; over one is a `BinaryInvalid`.

    `size`, `unpacked`, `function_bytes` and `code_bytes` are bytes: of the file, of its sections when those
    that are compressed aren't any more, of the code of one sampled function, and of all of them.
    `ranges` are those of addresses, each with a line. `table_entries` are those of the jump tables of one
    function. `symbolizer_seconds` and `symbolizer_bytes` bound the time and the memory of llvm-symbolizer,
    and `flow_seconds` the solver for one function.
    """

    size: int = 2 << 30
    unpacked: int = 8 << 30
    sections: int = 10_000
    symbols: int = 5_000_000
    relocations: int = 20_000_000
    ranges: int = 20_000_000
    function_bytes: int = 1 << 20
    table_entries: int = 1 << 20
    code_bytes: int = 32 << 20
    symbolizer_seconds: float = 600.0
    symbolizer_bytes: int = 8 << 30
    flow_seconds: float = 10.0
