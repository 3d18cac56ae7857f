"""The profile that a child process's output becomes: from a recorded stream, so with exact numbers."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pgo_agent.latency import TRACKERS, Counts, Recorder, StackNamer, Tick
from pgo_agent.latency import recorder as recording
from pgo_agent.latency.copied_stacks import CopiedStacks
from pgo_agent.native import BY_FRAME_POINTERS, Frame, Mapping, Stack

from tests.agent.latency.waiting import samples_of
from tests.agent.serving import parsed

COUNTERS = Counts.NAMES
GONE = 4_000_000  # a pid that no process has


def addresses(*numbers: int) -> str:
    return struct.pack(f"={len(numbers)}Q", *numbers).hex()


def stack(address: int, bucket: int, count: int, total: int, waker: int = 0) -> list[Any]:
    """Return a stack as the child process prints it: 1 is the operation `blocked`."""
    waking = [[GONE, "waker"], "", addresses(waker), 0] if waker else None
    return [[GONE, "shop"], 0, "", 1, "", addresses(address), 0, waking, bucket, count, total]


def tick(stacks: list[list[Any]], **rest: Any) -> Tick:
    counters = dict.fromkeys(COUNTERS, 0) | rest.pop("counters", {})
    printed = {"stacks": stacks, "below": {}, "dropped": {}, "counters": counters, "min": 1, "max": 100}
    return Tick.parse(TRACKERS["offcpu"], printed | rest, CopiedStacks().whole, BY_FRAME_POINTERS)


@pytest.mark.usefixtures("stand_ins")
def test_ticks_add_up_to_a_profile_with_its_histogram() -> None:
    recorder = Recorder("offcpu")
    first = tick(
        [stack(0x1000, 23, 2, 10_000_000), stack(0x2000, 24, 1, 9_000_000)],
        below={"10": [5, 4000], "0": [1, 0]},
        dropped={"24": [3, 30_000_000]},
        counters={"seen": 13, "below": 6, "reported": 3, "ring_full": 3, "table_full": 1},
    )
    recorder.add_tick(first)
    recorder.add_tick(tick([stack(0x1000, 23, 1, 5_000_000)], counters={"seen": 1, "reported": 1}))
    found = {
        (tuple(sample.functions), sample.labels["latency"]): (sample.events, sample.delay)
        for sample in samples_of(recorder.profile())
        if not sample.labels.get("comm")
    }
    assert found == {
        (("(below the threshold)",), 512): (5, 4000),
        (("(below the threshold)",), 0): (1, 0),
        (("(dropped)",), 1 << 23): (3, 30_000_000),
    }
    waits = [sample for sample in samples_of(recorder.profile()) if sample.labels.get("comm") == "shop"]
    assert sorted((sample.events, sample.delay) for sample in waits) == [(1, 9_000_000), (3, 15_000_000)]
    for sample in waits:
        assert {*sample.labels} == {"tracker", "comm", "operation", "pid", "latency"}
    read = parsed(recorder.profile())
    texts = [text.decode() for text in read.string_table]
    types = [(texts[of.type], texts[of.unit]) for of in read.sample_type]
    assert types == [("contentions", "count"), ("delay", "nanoseconds")]
    assert texts[read.default_sample_type] == "delay"
    assert "offcpu: seen 14" in [texts[comment] for comment in read.comment]
    units = {
        texts[label.num_unit]
        for sample in read.sample
        for label in sample.label
        if texts[label.key] == "latency"
    }
    assert units == {"nanoseconds"}
    assert recorder.histogram.counts == {0: 1, 10: 5, 23: 3, 24: 4}
    assert recorder.histogram.total == sum(sample.delay for sample in samples_of(recorder.profile()))
    counts = recorder.counts.as_json()
    assert counts["dropped"] == 4
    assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]


@pytest.mark.usefixtures("stand_ins")
def test_the_waker_is_above_the_separator() -> None:
    recorder = Recorder("offcpu")
    recorder.add_tick(tick([stack(0x1000, 23, 1, 5_000_000, waker=0x2000)]))
    (sample,) = parsed(recorder.profile()).sample
    read = parsed(recorder.profile())
    places = [read.location[location - 1].address for location in sample.location_id]
    assert places == [0x2000, 0, 0x1000]


@pytest.mark.usefixtures("stand_ins")
def test_more_stacks_than_are_kept_are_counted_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MOST_DELAYS", 2)
    recorder = Recorder("offcpu")
    stacks = [stack(0x1000 * number, 23, 1, 5_000_000) for number in range(1, 6)]
    recorder.add_tick(tick(stacks, counters={"seen": 5, "reported": 5}))
    samples = samples_of(recorder.profile())
    assert [sample.events for sample in samples if sample.functions == ["(dropped)"]] == [3]
    counts = recorder.counts.as_json()
    assert (counts["seen"], counts["reported"], counts["left_out"]) == (5, 2, 3)
    assert recorder.histogram.count == 5


def test_the_longest_are_summed_over_buckets() -> None:
    recorder = Recorder("offcpu")
    recorder.add_tick(tick([stack(0x1000, 23, 1, 5), stack(0x1000, 24, 1, 9), stack(0x2000, 24, 1, 11)]))
    assert [(count, total) for _, count, total in recorder.longest(5)] == [(2, 14), (1, 11)]
    assert len(recorder.longest(1)) == 1


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("most", [1, 100])
def test_a_function_that_is_not_known_is_an_address_or_a_place_in_its_file(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A namer that has forgotten names looks them up again."""
    monkeypatch.setattr(recording, "_MOST_NAMES", most)
    mapping = Mapping("/srv/shop", "", 0x2000, 0x1000, 0x500)
    frames = (Frame(0x10, None, ""), Frame(0x2010, mapping, ""), Frame(0x20, None, "main"))
    namer = StackNamer()
    for _ in range(2):
        assert namer.names([Stack("shop", GONE, 0, frames)]) == [["0x10", "shop+0x510", "main"]]


@pytest.mark.parametrize(
    ("tracker", "number", "name", "operation", "labels"),
    [
        ("wakeup", 0, "", 0, {}),
        ("syscall", 35, "nanosleep", 0, {"syscall": "nanosleep"}),
        ("block", 4095 << 20 | 7, "WS", 0, {"device": "4095:7", "operation": "write"}),
        ("block", 4095 << 20, "FF", 0, {"device": "4095:0", "operation": "flush"}),
        ("irq", 24, "virtio0", 0, {"vector": "virtio0"}),
        ("irq", 24, "", 0, {"vector": "24"}),
        ("softirq", 3, "", 0, {"vector": "NET_RX"}),
        ("softirq", 77, "", 0, {"vector": "77"}),
        ("network", 0, "eth0", 4, {"device": "eth0", "operation": "send"}),
        ("network", 0, "", 5, {"operation": "connect"}),
    ],
)
def test_labels(tracker: str, number: int, name: str, operation: int, labels: dict[str, str]) -> None:
    assert dict(TRACKERS[tracker].labels(number, name, operation)) == labels
