"""Sample types of many services: values of the same type alone can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pprof_merge import ValueType


def most_common(types: Mapping[str, ValueType]) -> ValueType:
    """The type that most services measure; of those that as many do, the first by name."""
    counts = Counter(types.values())
    return min(counts, key=lambda type_: (-counts[type_], type_))


def others(types: Mapping[str, ValueType], chosen: ValueType) -> dict[str, str]:
    """The services that measure something else, by name, and what that is."""
    return {service: str(type_) for service, type_ in sorted(types.items()) if type_ != chosen}
