"""Where profiles come from: instances and versions of a program, as far as the profiles tell.

A pprof profile has no field for either. An agent may put both on its samples as labels, and a binary that
was built with a build id has that in its mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pprof_merge.dictionary import Dictionary, Traces

_INSTANCE = b"instance"
_VERSION = b"version"
# Libraries, and what the kernel maps: what google/pprof doesn't take for the main binary either.
_NO_PROGRAM = re.compile(rb"^\[|^//anon|[.]so$|[.]so[._][0-9]")


@dataclass(frozen=True, slots=True)
class Origin:
    """The instances and versions that one profile, which may be a merge, is of; empty where it doesn't tell.

    Instances are the texts of the label `instance`. Versions are those of the label `version`; where no
    sample has one, the build id of the program, or else its file name.
    """

    instances: frozenset[bytes]
    versions: frozenset[bytes]


def origins_of(dictionary: Dictionary, profiles: Sequence[Traces]) -> list[Origin]:
    """The origin of each profile that left these traces."""
    strings = list(dictionary.strings)
    numbers = [np.unique(dictionary.label_sets_of(traces.stacks)) for traces in profiles]
    used = np.unique(np.concatenate([*numbers, np.zeros(0, np.int64)]))
    sets = dict(zip(used.tolist(), dictionary.label_sets(used), strict=True))

    def texts(label_sets: Iterable[int], key: bytes) -> frozenset[bytes]:
        labels = (label for number in label_sets for label in sets[number])
        found = (strings[label.text] for label in labels if label.text >= 0 and strings[label.key] == key)
        return frozenset(found) - {b""}

    return [
        Origin(
            instances=texts(label_sets.tolist(), _INSTANCE),
            versions=texts(label_sets.tolist(), _VERSION) or _binaries(traces, strings),
        )
        for traces, label_sets in zip(profiles, numbers, strict=True)
    ]


def _binaries(traces: Traces, strings: Sequence[bytes]) -> frozenset[bytes]:
    """The main binary, and in a merge of several versions those of the others."""
    mappings = (*traces.main.values(), *traces.mappings.values())
    binaries = [mapping for mapping in mappings if not _NO_PROGRAM.search(strings[mapping.filename])]
    return frozenset(strings[binary.build_id] or strings[binary.filename] for binary in binaries) - {b""}
