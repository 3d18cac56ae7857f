"""Stacks of a Python program → a pprof CPU profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pgo_agent.cpu_profile import CpuProfile


class Function(NamedTuple):
    """A function as its source has it; its name starts with that of its module."""

    name: str
    file: str
    start_line: int


Stack = tuple[tuple[Function, int], ...]  # function and line, the innermost first


def python_profile(samples: Mapping[Stack, int], began: int, duration: int, period: int) -> bytes:
    """The gzipped pprof of stacks, each seen so many times, once in every `period` of CPU time (ns).

    `began` is ns since 1970, `duration` ns. Locations have no address and no mapping: lines are all there is.
    """
    made = _PythonProfile()
    made.set_times(began, duration, period)
    for stack, count in samples.items():
        made.profile.sample.add(
            value=[count, count * period], location_id=[made.location(*frame) for frame in stack]
        )
    return made.gzipped()


class _PythonProfile(CpuProfile):
    def location(self, function: Function, line: int) -> int:
        key = function, line
        if key not in self._ids:
            id_ = self._ids[key] = len(self.profile.location) + 1
            name, file, start_line = function
            self.profile.location.add(id=id_).line.add(
                function_id=self.function(name, name, file, start_line), line=line
            )
        return self._ids[key]
