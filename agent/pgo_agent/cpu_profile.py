"""A pprof CPU profile in the making: its header, and the strings and messages that it has already."""

from __future__ import annotations

import gzip
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pprof_proto.profile_pb2 import Profile


class CpuProfile:
    """Values are samples/count and cpu/nanoseconds. What messages refer to is added on first use."""

    def __init__(self) -> None:
        from pprof_proto.profile_pb2 import Profile  # noqa: PLC0415 - many programs only send profiles

        self.profile: Profile = Profile(string_table=[b""])
        self._ids: dict[Hashable, int] = {"": 0}
        self.profile.sample_type.add(type=self.text("samples"), unit=self.text("count"))
        self.profile.sample_type.add(type=self.text("cpu"), unit=self.text("nanoseconds"))
        self.profile.period_type.type, self.profile.period_type.unit = (
            self.text("cpu"),
            self.text("nanoseconds"),
        )

    def set_times(self, began: int, duration: int, period: int) -> None:
        """Its begin (ns since 1970), its duration and the CPU time between two samples (ns)."""
        self.profile.time_nanos, self.profile.duration_nanos = began, duration
        self.profile.period = period

    def text(self, string: str) -> int:
        """The index of the string."""
        if string not in self._ids:
            self._ids[string] = len(self.profile.string_table)
            self.profile.string_table.append(string.encode(errors="surrogateescape"))
        return self._ids[string]

    def function(self, name: str, system_name: str, file: str, start_line: int) -> int:
        """The id of the function; its first line is 0 where that isn't known."""
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
        """The profile as it is sent."""
        return gzip.compress(self.profile.SerializeToString(), mtime=0)
