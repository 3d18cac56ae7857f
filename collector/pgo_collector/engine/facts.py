"""Facts: what the catalog knows of a profile besides its series."""

from __future__ import annotations

from dataclasses import dataclass

from pprof_merge import Header


@dataclass(frozen=True, slots=True)
class Facts:
    """What the catalog knows of a profile. Times in ns, `size` in bytes of the file, `digest` in hex."""

    time_nanos: int
    duration_nanos: int
    digest: str
    size: int
    samples: int

    @classmethod
    def of(cls, header: Header, digest: str, size: int, samples: int) -> Facts:
        """The facts of a profile whose bare protobuf has that digest and whose file that size."""
        return cls(header.time_nanos, header.duration_nanos, digest, size, samples)
