"""Turn what a tracker counted into a pprof profile, whose histogram is in the labels of its samples.

The sample types are contentions/count and delay/nanoseconds. Each sample has the labels `tracker` and
`latency`: the lower bound (ns) of the bucket of a power of two that its events are in. Events below the
threshold, which have no stack, are samples of one frame; so are dropped ones. So the counts by `latency` are
the histogram of all events, also after profiles are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pgo_agent.latency.histogram import lower_bound
from pgo_agent.latency.trackers import Labels
from pgo_agent.native import Frame, NativeProfileBuilder, Stack
from pgo_agent.profile_builder import DELAY_TYPES

BELOW = "(below the threshold)"
DROPPED = "(dropped)"
LOST = "(stack lost)"
SEPARATOR = "--"


class Delay(NamedTuple):
    """Events with the same stack, labels and bucket; a `pid` of 0 stands for any process."""

    stack: Stack
    labels: Labels
    bucket: int


def frameless(name: str) -> Stack:
    """Return the stack of events that have none: a single frame with a name."""
    return Stack("", 0, 0, (Frame(0, None, name),))


def latency_profile(
    tracker: str,
    began: int,
    duration: int,
    delays: Mapping[Delay, tuple[int, int]],
    comments: Iterable[str] = (),
) -> bytes:
    """Return a gzipped pprof profile of events: each Delay with its number and its total delay (ns).

    `began` is in ns since 1970, `duration` in ns. Raises ToolFailed if functions can't be looked up.
    """
    builder = NativeProfileBuilder((delay.stack for delay in delays), DELAY_TYPES)
    builder.set_times(began, duration, 1)
    builder.profile.default_sample_type = builder.text(DELAY_TYPES[-1][0])
    builder.profile.comment.extend(map(builder.text, comments))
    builder.set_main_binary((delay.stack, count) for delay, (count, _) in delays.items())
    for (stack, labels, bucket), values in delays.items():
        sample = builder.profile.sample.add(value=values, location_id=map(builder.location, stack.frames))
        for key, value in (("tracker", tracker), ("comm", stack.comm), *labels):
            if value:
                sample.label.add(key=builder.text(key), str=builder.text(value))
        if stack.pid:
            sample.label.add(key=builder.text("pid"), num=stack.pid)
        sample.label.add(
            key=builder.text("latency"), num=lower_bound(bucket), num_unit=builder.text("nanoseconds")
        )
    return builder.gzipped()
