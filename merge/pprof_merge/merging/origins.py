"""Origins: the instances and versions of a program that profiles come from, as far as the profiles say.

A pprof profile has no field for either. An agent may set both as labels of samples, and the mapping of a
binary that was built with a build id has that id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.columns.ragged import first_appearance, rows_of_indexes
from pprof_merge.merging.dictionary import Dictionary, Label
from pprof_merge.merging.mapping_use import BUILD_ID, FILENAME
from pprof_merge.merging.selection import Part, SelectedProfiles

# Labels of a whole profile that are known from elsewhere, such as those of its series.
GivenLabels = Mapping[str, str]

_INSTANCE = b"instance"
_VERSION = b"version"
# Libraries and kernel mappings, which google/pprof does not take for the main binary either.
_NOT_MAIN_BINARY = rb"^\[|^//anon|[.]so$|[.]so[._][0-9]"


class Origin(NamedTuple):
    """The instances and versions that one profile, which may be a merge, comes from; empty if unknown.

    Instances are the values of the label `instance`. Versions are the values of the label `version`; if no
    sample has that label, the build id of the program, or else its file name.
    """

    instances: frozenset[bytes]
    versions: frozenset[bytes]


def origins_of(
    dictionary: Dictionary, profiles: SelectedProfiles, given: Sequence[GivenLabels]
) -> list[Origin]:
    """Return the origin of each profile of a merge: by its given labels, or else by its own content."""
    strings = dictionary.strings()
    sample_types = profiles.headers()[0].sample_types if len(profiles) else ()
    own = (
        origin for part in profiles.parts(sample_types) for origin in _own_origins(dictionary, part, strings)
    )
    return [
        Origin(
            _given(labels, _INSTANCE) or origin.instances,
            _given(labels, _VERSION) or origin.versions,
        )
        for origin, labels in zip(own, given, strict=True)
    ]


def _given(labels: GivenLabels, key: bytes) -> frozenset[bytes]:
    text = labels.get(key.decode())
    return frozenset() if text is None else frozenset([text.encode()])


def _own_origins(dictionary: Dictionary, part: Part, strings: Sequence[bytes]) -> Iterator[Origin]:
    n_profiles = len(part.mapping_offsets) - 1
    instances: list[set[bytes]] = [set() for _ in range(n_profiles)]
    versions: list[set[bytes]] = [set() for _ in range(n_profiles)]
    found = {_INSTANCE: instances, _VERSION: versions}
    for profile, labels in _labels(dictionary, part):
        for label in labels:
            if label.text >= 0 and strings[label.text] and strings[label.key] in found:
                found[strings[label.key]][profile].add(strings[label.text])
    binaries = part.mappings[:, [BUILD_ID, FILENAME]].tolist()
    spans = pairwise(part.mapping_offsets.tolist())
    for of_instances, of_versions, (begin, end) in zip(instances, versions, spans, strict=True):
        of_binaries = frozenset(_names(binaries[begin:end], strings))
        yield Origin(frozenset(of_instances), frozenset(of_versions) or of_binaries)


def _labels(dictionary: Dictionary, part: Part) -> Iterator[tuple[int, tuple[Label, ...]]]:
    """Yield each distinct pair of a profile's position in the part, and a label set of its samples."""
    label_sets = dictionary.label_sets_of(part.chunk.stacks)
    labelled = np.flatnonzero(label_sets)  # number 0 is the empty set, which most samples have
    used, index_of = first_appearance(label_sets[labelled])
    sets = dictionary.label_sets(used)
    profile = rows_of_indexes(part.chunk.offsets, labelled)
    pairs = np.unique(profile * max(len(used), 1) + index_of[label_sets[labelled]])
    for pair in pairs.tolist():
        yield pair // len(used), sets[pair % len(used)]


def _names(binaries: Iterable[tuple[int, int]], strings: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the build id, or else the file name, of each program: several in a merge of several versions."""
    for build_id, filename in binaries:
        if not re.search(_NOT_MAIN_BINARY, strings[filename]) and (
            name := strings[build_id] or strings[filename]
        ):
            yield name
