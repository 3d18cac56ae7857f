"""Where profiles come from: instances and versions of a program, as far as the profiles tell.

A pprof profile has no field for either. An agent may put both on its samples as labels, and a binary that
was built with a build id has that in its mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pprof_merge.columns.ragged import first_appearance, rows_of_indexes
from pprof_merge.merging.dictionary import Dictionary
from pprof_merge.merging.label_sets import Label
from pprof_merge.merging.mapping_use import BUILD_ID, FILENAME
from pprof_merge.merging.selection import Part, SelectedTraces

# What is known of a profile besides what is in it, as labels.
Told = Mapping[str, str]

_INSTANCE = b"instance"
_VERSION = b"version"
# Libraries, and what the kernel maps: what google/pprof doesn't take for the main binary either.
_NO_PROGRAM = rb"^\[|^//anon|[.]so$|[.]so[._][0-9]"


class Origin(NamedTuple):
    """The instances and versions that one profile, which may be a merge, is of; empty where it doesn't tell.

    Instances are the texts of the label `instance`. Versions are those of the label `version`; where no
    sample has one, the build id of the program, or else its file name.
    """

    instances: frozenset[bytes]
    versions: frozenset[bytes]


def origins_of(dictionary: Dictionary, profiles: SelectedTraces, told: Sequence[Told]) -> list[Origin]:
    """The origin of each profile, of those of a merge: as told from outside, else as it says itself."""
    strings = list(dictionary.strings)
    sample_types = profiles.headers()[0].sample_types if len(profiles) else ()
    own = (
        origin for part in profiles.parts(sample_types) for origin in _own_origins(dictionary, part, strings)
    )
    return [
        Origin(
            _told(labels, _INSTANCE) or origin.instances,
            _told(labels, _VERSION) or origin.versions,
        )
        for origin, labels in zip(own, told, strict=True)
    ]


def _told(labels: Told, key: bytes) -> frozenset[bytes]:
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
    """The label sets that the samples of each profile have, with the profile's place."""
    label_sets = dictionary.label_sets_of(part.chunk.stacks)
    labelled = np.flatnonzero(label_sets)  # number 0 is the empty set, which most samples have
    used, place = first_appearance(label_sets[labelled])
    sets = dictionary.label_sets(used)
    profile = rows_of_indexes(part.chunk.offsets, labelled)
    pairs = np.unique(profile * max(len(used), 1) + place[label_sets[labelled]])
    for pair in pairs.tolist():
        yield pair // len(used), sets[pair % len(used)]


def _names(binaries: Iterable[tuple[int, int]], strings: Sequence[bytes]) -> Iterator[bytes]:
    """The main binary, and in a merge of several versions those of the others: by build id, or by name."""
    for build_id, filename in binaries:
        if not re.search(_NO_PROGRAM, strings[filename]) and (name := strings[build_id] or strings[filename]):
            yield name
