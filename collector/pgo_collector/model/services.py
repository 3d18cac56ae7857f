"""Several services in one request: their names written as one, and how much each counts.

A merge of several services is one of a selection whose `service` is their names with `+` between them, which
is in no name. Whatever reads such a name goes by `services_of`, and a scope includes it only if it includes
each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from math import gcd

from pgo_collector.errors import ParameterInvalid

BETWEEN = "+"
# Services in one merge.
MOST_SERVICES = 32
_WEIGHT = re.compile(r"(?P<service>[^:,]+):(?P<whole>[0-9]{1,6})(?:\.(?P<rest>[0-9]{1,3}))?")
# The longest name of a folder of releases that isn't shortened.
_LONGEST_FOLDER = 200

# The weight of each of several services, by name: whole numbers without a common divisor. Empty for none.
ServiceWeights = tuple[tuple[str, int], ...]


def joined(services: Iterable[str]) -> str:
    """Return the names of services as one: the same for any order, each once."""
    return BETWEEN.join(sorted({*services}))


def services_of(service: str) -> list[str]:
    """Return the services that a name stands for, sorted: one for the name of a service."""
    return service.split(BETWEEN)


def is_several(service: str) -> bool:
    """Return whether a name stands for several services."""
    return BETWEEN in service


def parse_weights(text: str, service: str) -> ServiceWeights:
    """Return the weights in `a:2,b:0.5`, which must name each of the services. Raises ParameterInvalid."""
    weights: dict[str, int] = {}
    for part in text.split(","):
        found = _WEIGHT.fullmatch(part)
        thousandths = int(found["whole"]) * 1000 + int((found["rest"] or "").ljust(3, "0")) if found else 0
        if found is None or not thousandths:
            raise ParameterInvalid(
                f"weights: {part[:50]!r}: write the name of a service and a number above 0, as in a:2,b:0.5"
            )
        if found["service"] in weights:
            raise ParameterInvalid(f"weights: {found['service'][:50]!r} is given twice")
        weights[found["service"]] = thousandths
    services = services_of(service)
    for name in (*weights.keys() - {*services}, *services):
        if name not in services:
            raise ParameterInvalid(
                f"weights: {name[:50]!r} is none of the services: {', '.join(services)[:200]}"
            )
        if name not in weights:
            raise ParameterInvalid(f"weights: give one for each service; there is none for {name!r}")
    if len(services) == 1:
        return ()
    divisor = gcd(*weights.values())
    return tuple((name, weights[name] // divisor) for name in services)


def release_folder(service: str, weights: ServiceWeights = ()) -> str:
    """Return the name of the folder with the releases of a service, or of several with these weights."""
    name = BETWEEN.join(f"{each}:{weight}" for each, weight in weights) or service
    return name if len(name) <= _LONGEST_FOLDER else f"{BETWEEN}{sha256(name.encode()).hexdigest()}"
