"""Naming: which service, type and labels a profile of OTLP gets, by attributes of its resource and scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from functools import lru_cache
from types import MappingProxyType

from pprof_merge import Header

from pgo_collector.routes.otlp.dictionary import Value, text_of
from pgo_collector.routes.push.naming import UNKNOWN_SERVICE, Sender, Target, profile_name

_SERVICE = "service.name"
_EXECUTABLE = "process.executable.name"
# The attribute of a scope with the sample type that is shown first.
DEFAULT_TYPE = "pprof.scope.default_sample_type"
_OFF_CPU = "off_cpu"
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9_]")
# Longer keys of attributes make no labels: no label is so long.
_LONGEST_KEY = 255
# The attributes by which reports and weights tell versions and instances apart.
_RENAMED: Mapping[str, str] = MappingProxyType(
    {"service.version": "version", "service.instance.id": "instance"}
)


def target_of(attributes: Mapping[str, Value], kept: frozenset[str], sender: Sender) -> Target:
    """Return where a profile goes whose resource and scope have these attributes. Raises LabelsInvalid.

    The attributes are those of which `is_named` is true, and labels are made of those that match `kept`. The
    target has no name: see `name_of`.
    """
    service = text_of(attributes.get(_SERVICE))
    program = text_of(attributes.get(_EXECUTABLE))
    if not service and program and sender.service == UNKNOWN_SERVICE:
        service = f"{UNKNOWN_SERVICE}:{program}"
    labels = {"service_name": service}
    for key, value in attributes.items():
        if matches(key, kept):
            labels.setdefault(_RENAMED.get(key) or _NOT_IN_KEYS.sub("_", key), text_of(value))
    return Target.of(labels.items(), sender)


def name_of(header: Header) -> str:
    """Return the name that Pyroscope gives a profile with this header."""
    if any(sample_type.type == _OFF_CPU.encode() for sample_type in header.sample_types):
        return _OFF_CPU
    return profile_name(header, {})


def patterns_of(text: str) -> frozenset[str]:
    """Return comma-separated patterns of attributes."""
    return frozenset(filter(None, map(str.strip, text.split(","))))


def is_named(kept: frozenset[str], key: str) -> bool:
    """Return whether an attribute of a resource or scope names its profiles, or becomes a label."""
    return key in {_SERVICE, _EXECUTABLE, DEFAULT_TYPE} or matches(key, kept)


def matches(key: str, patterns: frozenset[str]) -> bool:
    """Return whether the key of an attribute matches one of the patterns, in which `*` is any text.

    A key that is too long for a label matches none.
    """
    return len(key) <= _LONGEST_KEY and _expression(patterns).match(key) is not None


@lru_cache(maxsize=8)
def _expression(patterns: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, sorted(patterns))) or "(?!)")
