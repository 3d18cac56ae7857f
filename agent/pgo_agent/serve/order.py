"""What a request asks for: the body of POST /profile/cpu, checked."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pgo_agent.backends.backend import Backend
from pgo_agent.backends.bcc import Bcc
from pgo_agent.backends.bpftrace import Bpftrace
from pgo_agent.backends.perf import Perf
from pgo_agent.serve.refusal import Refusal

_BACKENDS: Mapping[str, type[Bcc | Perf | Bpftrace]] = {
    "BccProfile": Bcc,
    "Perf": Perf,
    "Bpftrace": Bpftrace,
}


@dataclass(frozen=True, slots=True)
class Order:
    """A profile by `backend`, `frequency` samples a second for `duration` seconds; gzipped, or bare."""

    backend: Backend
    frequency: int
    duration: int
    archive: bool

    @classmethod
    def parse(cls, body: bytes, allowed: Collection[str]) -> Self:
        """The order in a body; `allowed` are the programs that it may name.

        Raises Refusal: 400 if it isn't JSON, 422 if it says something else than it may.
        """
        try:
            said = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"The body is not JSON: {error}") from None
        if not isinstance(said, dict):
            raise Refusal(422, "The body must be an object.")
        return cls(
            backend=_backend(said.get("profiler"), allowed),
            frequency=_number(said, "sampling_frequency", 100, 1000),
            duration=_number(said, "timeout_seconds", 5, 60),
            archive=_archive(said.get("archive", False)),
        )


def _backend(profiler: object, allowed: Collection[str]) -> Backend:
    if not isinstance(profiler, dict) or len(profiler) != 1 or not profiler.keys() <= _BACKENDS.keys():
        names = ", ".join(f'{{"{name}": null}}' for name in _BACKENDS)
        raise Refusal(422, f"profiler must be one of {names}.")
    ((name, program),) = profiler.items()
    if program is None:
        return _BACKENDS[name]()
    if not isinstance(program, str) or program not in allowed:
        raise Refusal(422, f"profiler: {program!r} is not a program that this agent's settings allow.")
    return _BACKENDS[name](program)


def _number(said: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = said.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise Refusal(422, f"{name} must be a whole number from 1 to {most}.")
    return value


def _archive(value: object) -> bool:
    if not isinstance(value, bool):
        raise Refusal(422, "archive must be true or false.")
    return value
