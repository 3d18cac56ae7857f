"""Build a pprof profile message: its header, string table and functions.

`stack_sampler` (Python programs), `native.pprof` (native programs) and `latency.profile` (what programs wait
for) extend the builder here.
"""

from __future__ import annotations

import gzip
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pprof_proto.profile_pb2 import Profile


CPU_TYPES = (("samples", "count"), ("cpu", "nanoseconds"))
BRANCH_TYPES = (("ranges", "count"), ("branches", "count"))
DELAY_TYPES = (("contentions", "count"), ("delay", "nanoseconds"))


class ProfileBuilder:
    """A pprof profile with these sample types, each a name and a unit, filled step by step.

    The last one is also the type of the period. `text` and `function` add a string or function on first use,
    and return its id from then on.
    """

    def __init__(self, types: Sequence[tuple[str, str]]) -> None:
        from pprof_proto.profile_pb2 import Profile  # noqa: PLC0415 - programs that only submit don't need it

        self.profile: Profile = Profile(string_table=[b""])
        self._ids: dict[Hashable, int] = {"": 0}
        for type_, unit in types:
            self.profile.sample_type.add(type=self.text(type_), unit=self.text(unit))
        self.profile.period_type.CopyFrom(self.profile.sample_type[-1])

    def set_times(self, began: int, duration: int, period: int) -> None:
        """Set the start (ns since 1970), the duration (ns) and the period: for CPU time, ns a sample."""
        self.profile.time_nanos, self.profile.duration_nanos = began, duration
        self.profile.period = period

    def text(self, string: str) -> int:
        """Return the index of a string in the string table."""
        if string not in self._ids:
            self._ids[string] = len(self.profile.string_table)
            self.profile.string_table.append(string.encode(errors="surrogateescape"))
        return self._ids[string]

    def function(self, name: str, system_name: str, file: str, start_line: int) -> int:
        """Return the id of a function; `start_line` is 0 if it isn't known."""
        key = system_name, file, start_line
        if key not in self._ids:
            id_ = self._ids[key] = len(self.profile.function) + 1
            self.profile.function.add(
                id=id_,
                name=self.text(name),
                system_name=self.text(system_name),
                filename=self.text(file),
                start_line=start_line,
            )
        return self._ids[key]

    def gzipped(self) -> bytes:
        """Return the serialized profile, gzipped. The same profile gives the same bytes."""
        return gzip.compress(self.profile.SerializeToString(), mtime=0)
