"""Where profiles come from: instances and versions of a program, as far as the profiles tell.

A pprof profile has no field for either. An agent may put both on its samples as labels, and a binary that
was built with a build id has that in its mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pprof_merge.dictionary import Dictionary
from pprof_merge.label_sets import Label
from pprof_merge.ragged import first_appearance
from pprof_merge.traces import Traces

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


def origins_of(dictionary: Dictionary, profiles: Sequence[Traces], told: Sequence[Told]) -> list[Origin]:
    """The origin of each profile that left these traces: as told from outside, else as it says itself."""
    strings = list(dictionary.strings)
    instances: list[set[bytes]] = [set() for _ in profiles]
    versions: list[set[bytes]] = [set() for _ in profiles]
    found = {_INSTANCE: instances, _VERSION: versions}
    for profile, labels in _labels(dictionary, profiles):
        for label in labels:
            if label.text >= 0 and strings[label.text] and strings[label.key] in found:
                found[strings[label.key]][profile].add(strings[label.text])
    return [
        Origin(
            _told(labels, _INSTANCE) or frozenset(of_instances),
            _told(labels, _VERSION) or frozenset(of_versions) or _binaries(traces, strings),
        )
        for traces, of_instances, of_versions, labels in zip(profiles, instances, versions, told, strict=True)
    ]


def _told(labels: Told, key: bytes) -> frozenset[bytes]:
    text = labels.get(key.decode())
    return frozenset() if text is None else frozenset([text.encode()])


def _labels(dictionary: Dictionary, profiles: Sequence[Traces]) -> Iterator[tuple[int, tuple[Label, ...]]]:
    """The label sets that the samples of each profile have, with the profile's place."""
    counts = [len(traces.stacks) for traces in profiles]
    stacks = np.concatenate([np.zeros(0, np.int32), *(traces.stacks for traces in profiles)])
    label_sets = dictionary.label_sets_of(stacks)
    labelled = np.flatnonzero(label_sets)  # number 0 is the empty set, which most samples have
    used, place = first_appearance(label_sets[labelled])
    sets = dictionary.label_sets(used)
    profile = np.repeat(np.arange(len(profiles)), counts)[labelled]
    pairs = np.unique(profile * max(len(used), 1) + place[label_sets[labelled]])
    for pair in pairs.tolist():
        yield pair // len(used), sets[pair % len(used)]


def _binaries(traces: Traces, strings: Sequence[bytes]) -> frozenset[bytes]:
    """The main binary, and in a merge of several versions those of the others."""
    mappings = (*traces.main.values(), *traces.mappings.values())
    binaries = [mapping for mapping in mappings if not re.search(_NO_PROGRAM, strings[mapping.filename])]
    return frozenset(strings[binary.build_id] or strings[binary.filename] for binary in binaries) - {b""}
