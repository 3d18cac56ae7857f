"""Parse and check the body of POST /profile/cpu."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pgo_agent.backends import Backend, Bcc, Bpftrace, Perf
from pgo_agent.serve.requests import RequestRefused, json_object

_BACKENDS: Mapping[str, type[Bcc | Perf | Bpftrace]] = {
    "BccProfile": Bcc,
    "Perf": Perf,
    "Bpftrace": Bpftrace,
}


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """Sample with `backend` at `frequency` (samples per second) for `duration` seconds.

    The answer is gzipped if `archive` is true.
    """

    backend: Backend
    frequency: int
    duration: int
    archive: bool

    @classmethod
    def parse(cls, body: bytes, allowed_programs: Collection[str]) -> Self:
        """Return the request in a JSON body, which may name one of `allowed_programs` as its profiler.

        Raises RequestRefused: 400 if the body isn't JSON, 422 if a value is wrong or not allowed.
        """
        fields = json_object(body)
        return cls(
            backend=_backend(fields.get("profiler"), allowed_programs),
            frequency=_number(fields, "sampling_frequency", 100, 1000),
            duration=_number(fields, "timeout_seconds", 5, 60),
            archive=_archive(fields.get("archive", False)),
        )


def _backend(profiler: object, allowed_programs: Collection[str]) -> Backend:
    if not isinstance(profiler, dict) or len(profiler) != 1 or not profiler.keys() <= _BACKENDS.keys():
        names = ", ".join(f'{{"{name}": null}}' for name in _BACKENDS)
        raise RequestRefused(422, f"profiler must be one of {names}.")
    ((name, program),) = profiler.items()
    if program is None:
        return _BACKENDS[name]()
    if not isinstance(program, str) or program not in allowed_programs:
        raise RequestRefused(422, f"profiler: {program!r} is not a program that this agent's settings allow.")
    return _BACKENDS[name](program)


def _number(fields: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise RequestRefused(422, f"{name} must be a whole number from 1 to {most}.")
    return value


def _archive(value: object) -> bool:
    if not isinstance(value, bool):
        raise RequestRefused(422, "archive must be true or false.")
    return value
