"""Profiles as the agent's latency trackers write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pprof_proto.profile_pb2 import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable

US, MS = 10**3, 10**6
BELOW = "(below the threshold)"


class Events(NamedTuple):
    """Events of one stack and bucket: the stack, such as `main.main;fsync`, the label if there is one, the
    number of waits, and the sum of their delays in ns.
    """

    stack: str
    latency: int | None
    waits: int
    delay: int
    pid: int = 0


def delayed(stack: str, delay: int, count: int = 1, pid: int = 0) -> Events:
    """Return events that were each delayed by `delay` ns."""
    return Events(stack, 1 << (delay.bit_length() - 1) if delay else 0, count, count * delay, pid)


def tracked(
    events: Iterable[Events],
    *,
    time_nanos: int = 1,
    tracker: str = "offcpu",
    unit: str = "nanoseconds",
    period_type: tuple[str, str] = ("delay", "nanoseconds"),
    sample_types: Iterable[tuple[str, str]] = (("contentions", "count"), ("delay", "nanoseconds")),
) -> bytes:
    """Return a tracker's profile, bare protobuf."""
    profile = Profile(time_nanos=time_nanos, duration_nanos=10**10, period=1, string_table=[b""])
    rows: dict[str, int] = {"": 0}

    def string(text: str) -> int:
        if text not in rows:
            rows[text] = len(profile.string_table)
            profile.string_table.append(text.encode())
        return rows[text]

    for type_, of in sample_types:
        profile.sample_type.add(type=string(type_), unit=string(of))
    profile.period_type.type, profile.period_type.unit = map(string, period_type)
    profile.default_sample_type = string("delay")
    profile.mapping.add(id=1, memory_start=0x400000, memory_limit=0x500000, filename=string("/bin/service"))
    locations: dict[str, int] = {}
    for event in events:
        for name in event.stack.split(";"):
            if name not in locations:
                number = locations[name] = len(locations) + 1
                profile.function.add(id=number, name=string(name), system_name=string(name))
                location = profile.location.add(id=number, mapping_id=1, address=0x401000 + number)
                location.line.add(function_id=number, line=2)
        sample = profile.sample.add(
            location_id=[locations[name] for name in reversed(event.stack.split(";"))],
            value=[event.waits, event.delay],
        )
        sample.label.add(key=string("tracker"), str=string(tracker))
        sample.label.add(key=string("comm"), str=string("service"))
        if event.pid:
            sample.label.add(key=string("pid"), num=event.pid)
        if event.latency is not None:
            sample.label.add(key=string("latency"), num=event.latency, num_unit=string(unit))
    return profile.SerializeToString()
