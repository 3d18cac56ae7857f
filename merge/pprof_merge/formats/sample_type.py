"""The sample type that counts where a format, or a person, looks at one alone."""

from __future__ import annotations

from pprof_merge.errors import ProfileError
from pprof_merge.profile import Header


def default_column(header: Header) -> int:
    """The column that `go tool pprof` shows unless it is told otherwise (`SampleIndexByName("")`).

    It is the one that the profile names as its default, else the last; for a CPU profile its time.
    Raises ProfileError where there is none.
    """
    if not header.sample_types:
        raise ProfileError("it has no sample type")
    types = [sample_type.type for sample_type in header.sample_types]
    named = header.default_sample_type
    return types.index(named) if named and named in types else len(types) - 1
