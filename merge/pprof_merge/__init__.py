"""Merge many pprof profiles into one, exactly as google/pprof does, and write it for a compiler or a person.

    from pprof_merge import FORMATS, decode, merge

    merged = merge(map(decode, bodies))  # bodies: bytes of pprof profiles, gzip or bare protobuf
    FORMATS["go"].write(merged)          # bytes for `go build -pgo`

The names in `__all__` are what most programs need. Seven rooms publish more, in the `__all__` of their doors:

- `pprof_merge.codec`: checks of many profiles at once, and output piece by piece
- `pprof_merge.merging`: weights, compatibility, and what a collection has read, to be saved
- `pprof_merge.analysis`: top table, diff, flame graph, latencies, report, rules
- `pprof_merge.formats`: what a format is
- `pprof_merge.binary`: a program beside its profile, for LLVM
- `pprof_merge.symbols`: the names of a program's functions, for a profile that has none
- `pprof_merge.heap`, `pprof_merge.arrays`, `pprof_merge.streams`: glibc's heap, the types of NumPy's arrays,
  and the standard streams of a command

Everything else may change. The folders, each of which imports only from those before it: `columns` (flat
arrays), `profile` (one profile as columns), `codec`, `merging`, `analysis`, `formats`, `binary`, `symbols`
and `command` (the command `pprof-merge`).

Used by all of them: `errors`, `limits` (of inputs), `budget` (of outputs), `heap`, `streams` and
`arrays`; `compiled` says whether the engine is compiled, and `lazy` imports what needs NumPy on its first
use.
"""

from typing import TYPE_CHECKING

from pprof_merge.compiled import ENGINE  # isort: skip - decides how the modules below are imported
from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.codec import compress, decode, encode, inflate
from pprof_merge.errors import (
    IncompatibleProfiles,
    LimitExceeded,
    MalformedProfile,
    OutputTooLarge,
    ProfileError,
    UnfitForFormat,
    UnfitForWeight,
)
from pprof_merge.formats import FORMATS
from pprof_merge.lazy import lazy_names
from pprof_merge.limits import Limits
from pprof_merge.merging import Weighting, merge
from pprof_merge.profile import Header, Profile, ValueType

if TYPE_CHECKING:
    from pprof_merge.merging import Collection

__all__ = [  # noqa: RUF022 - in the order in which a reader looks for them
    # Many profiles into one.
    "decode",
    "merge",
    "Collection",
    "Weighting",
    # A profile, and its bytes.
    "Profile",
    "Header",
    "ValueType",
    "FORMATS",
    "encode",
    "compress",
    "inflate",
    # How large profiles and outputs may be.
    "Limits",
    "Budget",
    "UNBOUNDED",
    # What goes wrong.
    "ProfileError",
    "MalformedProfile",
    "LimitExceeded",
    "IncompatibleProfiles",
    "UnfitForFormat",
    "UnfitForWeight",
    "OutputTooLarge",
    # Whether the engine is compiled.
    "ENGINE",
]

# `Collection` imports NumPy, and the command does without.
__getattr__ = lazy_names(__name__, {"merging": ["Collection"]})


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
