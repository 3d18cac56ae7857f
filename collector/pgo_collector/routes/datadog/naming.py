"""Naming: the labels of an upload's profiles, from its tags, and the profiles of one type in each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pprof_merge import Header

# Tags that differ at each profile or process, or describe the tracer. As labels they would make each process
# a series of its own.
_LEFT_OUT = re.compile(
    r"_dd\..*|runtime[-_](?:id|arch|compiler|engine|os|platform|version)|(?:agent|library|profiler)_version"
    r"|process_id|profile_seq|profiler_config|format|language|pgo|snapshot|git\.repository_url"
    r"|go_execution_traced"
)
_DEFAULT_ENV = "default_env"

# What the sample types of each profile begin with, its name in Pyroscope's words, and whether its values came
# since the profile before.
_NAMES: tuple[tuple[re.Pattern[bytes], str, bool], ...] = (
    (re.compile(rb"cpu"), "process_cpu", True),
    (re.compile(rb"wall"), "wall", True),
    (re.compile(rb"alloc"), "memory", True),
    (re.compile(rb"heap|inuse|objects|space"), "memory", False),
    (re.compile(rb"lock"), "mutex", True),
    (re.compile(rb"exception"), "exception", True),
    (re.compile(rb"timeline"), "timeline", True),
    (re.compile(rb"gpu"), "gpu", True),
)
# It counts the samples of the type that comes after it.
_COUNT = re.compile(rb"samples?")
_COUNT_UNIT = b"count"

# Go's profiles, by the name of their part without `delta-`.
_GO: dict[str, str] = {
    "cpu": "process_cpu",
    "heap": "memory",
    "block": "block",
    "mutex": "mutex",
    "goroutines": "goroutine",
    "goroutineleak": "goroutineleak",
}
_DELTA = "delta-"


class ProfileName(NamedTuple):
    """The name of what a profile measures, as Pyroscope calls it, and whether the profile is a delta."""

    name: str
    is_delta: bool


_UNKNOWN = ProfileName("unknown", is_delta=True)


def labels_of(tags: str, agent_tags: str) -> dict[str, str]:
    """Return the labels in the tags of an upload, `service_name` among them.

    Tags are `key:value,key2:value2`; of several with a key, the last counts, and one without a value is left
    out. `agent_tags` are those that an agent added; they have the host and the default of `env`.
    """
    added, own = dict(_parsed(agent_tags)), dict(_parsed(tags))
    labels = {key: value for key, value in added.items() if key == "host"}
    if env := added.get(_DEFAULT_ENV, ""):
        labels["env"] = env
    labels |= {key: value for key, value in own.items() if not _LEFT_OUT.fullmatch(key)}
    if service := labels.pop("service", ""):
        labels["service_name"] = service
    return labels


def _parsed(tags: str) -> Iterator[tuple[str, str]]:
    for tag in tags.split(","):
        key, _, value = tag.partition(":")
        if key.strip() and value.strip():
            yield key.strip(), value.strip()


def go_profile(stem: str) -> ProfileName | None:
    """Return what a part of Go's tracer measures, by its name without suffix; None for any other part."""
    plain = stem.removeprefix(_DELTA)
    name = _GO.get(plain)
    return None if name is None else ProfileName(name, is_delta=plain != stem)


def profiles_in(header: Header) -> dict[ProfileName, list[int]]:
    """Return the profiles that a profile with many sample types holds, and the columns of each.

    The first column is the one to show by default: a time or a size, where there is one.
    """
    found: dict[ProfileName, list[int]] = {}
    counts: list[int] = []
    for column, (type_, _) in enumerate(header.sample_types):
        if _COUNT.fullmatch(type_):
            counts.append(column)
            continue
        found.setdefault(_name_of(type_), []).extend([*counts, column])
        counts = []
    if counts:
        found.setdefault(_UNKNOWN, []).extend(counts)
    for columns in found.values():
        columns.sort(key=lambda column: header.sample_types[column].unit == _COUNT_UNIT)
    return found


def _name_of(sample_type: bytes) -> ProfileName:
    for pattern, name, is_delta in _NAMES:
        if pattern.match(sample_type):
            return ProfileName(name, is_delta)
    return _UNKNOWN
