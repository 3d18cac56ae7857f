"""pprof_merge: the bytes of many profiles → one `Profile` → bytes that a compiler or a person reads."""

from pprof_merge.budget import Budget
from pprof_merge.collection import Collection
from pprof_merge.compression import compress, inflate
from pprof_merge.decode import decode
from pprof_merge.encode import encode
from pprof_merge.errors import (
    IncompatibleProfiles,
    LimitExceeded,
    MalformedProfile,
    OutputTooLarge,
    ProfileError,
    RulesInvalid,
    SymbolsInvalid,
    UnfitForFormat,
    UnfitForWeight,
    WeightingInvalid,
)
from pprof_merge.limits import Limits
from pprof_merge.merge import merge
from pprof_merge.profile import Header, Profile, ValueType
from pprof_merge.segment import Segment
from pprof_merge.weights import Weighting

__all__ = [
    "Budget",
    "Collection",
    "Header",
    "IncompatibleProfiles",
    "LimitExceeded",
    "Limits",
    "MalformedProfile",
    "OutputTooLarge",
    "Profile",
    "ProfileError",
    "RulesInvalid",
    "Segment",
    "SymbolsInvalid",
    "UnfitForFormat",
    "UnfitForWeight",
    "ValueType",
    "Weighting",
    "WeightingInvalid",
    "compress",
    "decode",
    "encode",
    "inflate",
    "merge",
]
