"""The tracker's backend that runs bpftrace: its scripts, what their output becomes, and what is refused."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_agent.errors import NotSupported, ToolFailed
from pgo_agent.latency import (
    TRACKERS,
    Recorder,
    Session,
    Tick,
    TrackerSettings,
    choose_tracker_backend,
    probe,
    tracker_backends,
)
from pgo_agent.latency import backend as backends
from pgo_agent.latency.bpftrace_feed import BpftraceFeed, BpftraceTrackers, script_of
from pgo_agent.latency.copied_stacks import CopiedStacks

from tests.agent.busy import needs_gcc
from tests.agent.latency.waiting import (
    MS,
    NAME,
    build,
    needs_tracker,
    samples_of,
    tracking,
    wait_for_samples,
    waiting,
)
from tests.agent.serving import AGENT, Serving, parsed

BPFTRACE = tracker_backends()["bpftrace"]
GONE = 4_000_000  # a pid that no process has
KERNEL = "\\n\\tffffffff821facd8 __schedule+1560\\n\\tffffffff821fb643 schedule+35\\n\\n"
USER = "\\n\\t7f1674ced503 0x7f1674ced503 ([unknown])\\n\\n"


def event(
    delay: int,
    count: int,
    total: int,
    *,
    cpu: int = 0,
    parent: int = 0,
    comm: str = "shop",
    kernel: str = KERNEL,
    user: str = USER,
) -> bytes:
    """Return a line as bpftrace 0.17 prints it, of an event of offcpu; `comm` as in JSON."""
    fields = f"event {delay} {cpu} {count} {total} {GONE} {parent} {GONE + 1} 0 1{kernel};{user};;{comm}"
    return f'{{"type": "printf", "data": "{fields}"}}\n'.encode()


def printed(kind: str, name: str, counted: object) -> bytes:
    return json.dumps({"type": kind, "data": {name: counted}}).encode() + b"\n"


TICK = b'{"type": "printf", "data": "tick 4000000\\n"}\n'


def feed(events: int = 1000) -> BpftraceFeed:
    return BpftraceFeed((), threshold=MS, events=events)


def told(reading: BpftraceFeed, lines: Iterable[bytes]) -> list[tuple[str, Any]]:
    return [message for line in lines for message in reading.messages(line)]


def ticks(messages: Iterable[tuple[str, Any]]) -> Iterator[Tick]:
    for kind, said in messages:
        if kind == "tick":
            yield Tick.parse(TRACKERS["offcpu"], said, CopiedStacks().whole, BPFTRACE.how_followed())


def recorded(lines: Iterable[bytes]) -> Recorder:
    """Return a recorder that heard all, and see that the counts add up."""
    recorder, reading = Recorder("offcpu"), feed()
    for tick in ticks([*told(reading, lines), *reading.last_messages()]):
        recorder.add_tick(tick)
    counts = recorder.counts.as_json()
    assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]
    assert recorder.histogram.count == counts["seen"] - counts["table_full"] - counts["missed"]
    return recorder


@pytest.mark.usefixtures("stand_ins")
def test_a_recorded_output_becomes_a_profile() -> None:
    recorder = recorded(
        [
            event(7_100_000, 1, 7_100_000),
            event(7_200_000, 2, 14_300_000),
            printed("stats", "@below", {"19": {"count": 8, "average": 367291, "total": 2938329}}),
            printed("map", "@table_full", 0),
            TICK,
            event(9_000_000, 1, 9_000_000, cpu=1),
            printed("stats", "@below", {"19": {"count": 9, "average": 1, "total": 3_000_000}}),
            printed("map", "@table_full", 2),
            TICK,
            printed("map", "@over", {"0,23": 2, "1,24": 1}),
            printed("map", "@over_ns", {"0,23": 14_300_000, "1,24": 9_000_000}),
        ]
    )
    waits = [sample for sample in samples_of(recorder.profile()) if sample.labels.get("comm") == "shop"]
    assert sorted((sample.events, sample.delay, sample.labels["latency"]) for sample in waits) == [
        (1, 9_000_000, 1 << 23),
        (2, 14_300_000, 1 << 22),
    ]
    assert {sample.labels["operation"] for sample in waits} == {"blocked"}
    assert {sample.labels["pid"] for sample in waits} == {GONE}
    counts = recorder.counts.as_json()
    assert (counts["seen"], counts["below"], counts["reported"], counts["table_full"]) == (14, 9, 3, 2)
    assert counts["cut_short"] == 3
    comments = parsed(recorder.profile())
    last = comments.string_table[comments.comment[-1]].decode()
    assert last.startswith("stacks: by frame pointers: bpftrace can't do without, so use bcc or perf")
    assert recorder.histogram.counts == {19: 9, 23: 2, 24: 1}
    assert recorder.histogram.total == 3_000_000 + 14_300_000 + 9_000_000
    assert (recorder.histogram.min, recorder.histogram.max) == (1 << 18, 9_000_000)


@pytest.mark.usefixtures("stand_ins")
def test_what_bpftrace_drops_is_found_by_the_numbers_of_events() -> None:
    """Events 2 and 3 of CPU 0 are missing between two others, and the last two of CPU 1 at the end."""
    recorder = recorded(
        [
            event(7_000_000, 1, 7_000_000),
            event(7_000_000, 4, 29_000_000),
            event(7_000_000, 1, 7_000_000, cpu=1),
            b'{"type": "lost_events", "data": {"events": 4}}\n',
            TICK,
            printed("map", "@over", {"0,23": 4, "1,23": 3, "1,24": 1}),
            printed("map", "@over_ns", {"0,23": 29_000_000, "1,23": 22_000_000, "1,24": 9_000_000}),
        ]
    )
    counts = recorder.counts.as_json()
    assert (counts["seen"], counts["reported"], counts["ring_full"]) == (8, 3, 5)
    dropped = [sample for sample in samples_of(recorder.profile()) if sample.functions == ["(dropped)"]]
    assert sorted((one.labels["latency"], one.events, one.delay) for one in dropped) == [
        (1 << 22, 4, 30_000_000),
        (1 << 23, 1, 9_000_000),
    ]


@pytest.mark.parametrize(
    "comm",
    [
        "",
        "a;b",
        ";;;",
        "\\n\\tffffffff81000000 x",
        "event 1 1 1 1",
        "\\u0000",
        '\\"}',
        "\\ud800",
        "\u00e9",
        "tick\\n",
    ],
)
def test_a_thread_may_have_any_name(comm: str) -> None:
    reading = feed()
    messages = told(reading, [event(7_000_000, 1, 7_000_000, comm=comm)])
    (found,) = [said for kind, said in messages if kind == "event"]
    assert found["comm"] == json.loads(f'"{comm}"')
    assert found["pid"] == GONE
    assert struct.unpack("=2Q", bytes.fromhex(found["kernel"])) == (0xFFFFFFFF821FACD8, 0xFFFFFFFF821FB643)
    assert struct.unpack("=Q", bytes.fromhex(found["user"])) == (0x7F1674CED503,)


def test_a_name_of_bytes_that_are_no_text_is_kept() -> None:
    line = event(7_000_000, 1, 7_000_000).replace(b"shop", b"s\xff\x80")
    (found,) = [said for kind, said in told(feed(), [line]) if kind == "event"]
    assert os.fsencode(found["comm"]) == b"s\xff\x80"


@pytest.mark.usefixtures("stand_ins")
def test_an_event_without_a_stack_is_counted() -> None:
    recorder = recorded([event(7_000_000, 1, 7_000_000, kernel="\\n", user="\\n"), TICK])
    assert recorder.counts.as_json()["lost_stacks"] == 1
    (sample,) = samples_of(recorder.profile())
    assert sample.functions == ["(stack lost)"]


ODD = (
    b"",
    b"\n",
    b"\xff\xfe\n",
    b"Attaching 5 probes...\n",
    b"WARNING: addr2line: something\n",
    b"{\n",
    b'"tick"\n',
    b"[" * 100_000,
    b'{"type": "map"}\n',
    b'{"type": "map", "data": 5}\n',
    b'{"type": "map", "data": {"@over": 5, "@below": [], "@table_full": {}}}\n',
    b'{"type": "map", "data": {"@over": {"a,b": 5, "1": 5, "1,2,3": 5, "": 1, "\\u00b2,1": 1}}}\n',
    b'{"type": "map", "data": {"@over": {"1,99": "x"}}}\n',
    b'{"type": "stats", "data": {"@below": {"3": 5, "4": {}, "5": {"count": "x", "total": 1}}}}\n',
    b'{"type": "printf", "data": null}\n',
    b'{"type": ["printf"], "data": "tick\\n"}\n',
    b'{"type": "printf", "data": "event"}\n',
    b'{"type": "printf", "data": "event 1 2 3 4 5 6 7 8 9"}\n',
    event(1 << 64, 1, 1 << 64),
    event(10**25, 1, 1),
)


@pytest.mark.parametrize("line", ODD)
def test_an_odd_line_is_passed_over(line: bytes) -> None:
    recorder = recorded([event(7_000_000, 1, 7_000_000), line, event(7_000_000, 2, 14_000_000), TICK, line])
    counts = recorder.counts.as_json()
    assert (counts["seen"], counts["reported"], counts["dropped"]) == (2, 2, 0)


@given(st.lists(st.binary(max_size=80) | st.sampled_from([*ODD, TICK, event(5, 2, 9)])), st.integers(0, 200))
def test_no_output_stops_the_reader(lines: list[bytes], cut: int) -> None:
    recorded([*lines, event(7_000_000, 1, 7_000_000)[:cut]])


def test_more_stacks_than_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgo_agent.latency.bpftrace_feed._MOST_STACKS", 2)
    lines = [
        event(7_000_000, number, 7_000_000 * number, kernel=f"\\n\\tffff{number:08x} f+1\\n")
        for number in range(1, 6)
    ]
    counts = recorded([*lines, TICK]).counts.as_json()
    assert (counts["seen"], counts["reported"], counts["left_out"]) == (5, 2, 3)


def test_single_events_are_told_at_most_at_their_rate() -> None:
    messages = told(feed(events=1), [event(7_000_000, number, 7_000_000 * number) for number in range(1, 51)])
    assert [kind for kind, _ in messages].count("event") < 50
    assert [said for kind, said in messages if kind == "processes"] == [[[GONE]]]


@pytest.mark.parametrize(
    ("tracker", "given", "what"),
    [
        ("network", {}, "run the tracker network"),
        ("offcpu", {"timeout": "1s"}, "report what is in flight"),
        ("offcpu", {"wakers": True}, "record the stacks of wakers"),
        ("syscall", {"comms": ['a" || "b']}, "filter by the name"),
        ("syscall", {"comms": ["\\n"]}, "filter by the name"),
        ("syscall", {"comms": ["\u00e9"]}, "filter by the name"),
    ],
)
def test_what_a_script_can_not_do_is_refused(tracker: str, given: dict[str, Any], what: str) -> None:
    with pytest.raises(NotSupported, match=f"bpftrace can't {what}.*; bcc can"):
        script_of(TRACKERS[tracker], TrackerSettings.parse(given))


def test_a_refusal_says_what_keeps_bcc_from_doing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgo_agent.backends.bcc.platform.release", lambda: "9.9.9")
    monkeypatch.setattr("pgo_agent.backends.bcc._has_bcc", lambda _: True)
    with pytest.raises(
        NotSupported, match=r"bcc can, but .*the headers of kernel 9\.9\.9 are missing"
    ) as told:
        script_of(TRACKERS["network"], TrackerSettings())
    assert "python3-bpfcc" not in str(told.value)


@pytest.mark.parametrize("comm", ["a@b", "CLEAR", "THRESHOLD", "*/ // ;", "$1 @on"])
def test_a_name_in_a_filter_stays_a_name(comm: str) -> None:
    script = script_of(TRACKERS["offcpu"], TrackerSettings(comms=(comm,)))
    other = script_of(TRACKERS["offcpu"], TrackerSettings(comms=("other",)))
    assert script.replace(f'comm == "{comm}"', "") == other.replace('comm == "other"', "")


def test_a_script_watches_the_processes_and_control_groups_that_it_is_told() -> None:
    script = script_of(TRACKERS["offcpu"], TrackerSettings(pids=(7, 5), cgroups=("/no-such-group",)))
    assert "@wanted[pid] && @cgroups[cgroup]" in script
    filled = [line.strip() for line in script.splitlines() if "(uint64)" in line and "] = " in line]
    assert filled[:3] == ["@wanted[(uint64)5] = 1;", "@wanted[(uint64)7] = 1;", "@cgroups[(uint64)0] = 0;"]


@pytest.mark.usefixtures("stand_ins")
def test_a_tracker_that_works_is_told_with_its_backend() -> None:
    assert probe(TRACKERS["syscall"], BPFTRACE).name == "bpftrace"


def test_more_processes_than_a_script_may_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgo_agent.latency.bpftrace_feed._MOST_WATCHED", 1)
    with pytest.raises(NotSupported, match="watch more than 1 processes: here are 2"):
        script_of(TRACKERS["offcpu"], TrackerSettings(pids=(1, 2)))


class Fake:
    """A backend with known obstacles."""

    def __init__(self, name: str, *obstacles: str) -> None:
        self.name, self._obstacles = name, [*obstacles]

    def obstacles(self) -> list[str]:
        return self._obstacles


@pytest.mark.parametrize(
    ("of_bcc", "of_bpftrace", "chosen"),
    [((), (), "bcc"), (("no headers",), (), "bpftrace"), (("no headers",), ("not installed",), "bcc")],
)
def test_the_first_backend_without_an_obstacle_is_chosen(
    monkeypatch: pytest.MonkeyPatch, of_bcc: tuple[str, ...], of_bpftrace: tuple[str, ...], chosen: str
) -> None:
    known = {"bcc": Fake("bcc", *of_bcc), "bpftrace": Fake("bpftrace", *of_bpftrace)}
    monkeypatch.setattr(backends, "tracker_backends", lambda: known)
    assert choose_tracker_backend().name == chosen
    assert choose_tracker_backend("bpftrace").name == "bpftrace"


# Below here, bpftrace runs on this machine's kernel.


@pytest.fixture(scope="module")
def working() -> None:
    """Skip a test where bpftrace doesn't work."""
    needs_tracker("syscall", "bpftrace")


needs_bpftrace = pytest.mark.usefixtures("working")


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory, working: None) -> Path:  # noqa: ARG001 - it skips
    return build(tmp_path_factory.mktemp("waits"))


@needs_gcc
@pytest.mark.parametrize(
    ("way", "tracker", "function", "shortest", "labels"),
    [
        ("sleep", "offcpu", "sleep_seven", 7 * MS, {"operation": "blocked"}),
        pytest.param("queue", "wakeup", "nap_among_spinners", 0, {}, marks=pytest.mark.exhaustive),
        ("sync", "syscall", "sync_all", 0, {"syscall": "sync"}),
    ],
)
def test_the_waiting_function_is_found(  # noqa: PLR0917 - pytest passes them by name
    binary: Path, tmp_path: Path, way: str, tracker: str, function: str, shortest: int, labels: dict[str, str]
) -> None:
    settings = {"threshold": "100us", "executables": [NAME], "comms": [NAME[:15]]}
    with (
        waiting(binary, way, tmp_path / "file") as process,
        tracking(tracker, settings, BPFTRACE) as (session, recorder),
    ):
        assert session.backend.name == "bpftrace"
        found = wait_for_samples(
            recorder,
            lambda sample: function in sample.functions and labels.items() <= sample.labels.items(),
        )
    for sample in found:
        assert {
            "tracker": tracker,
            "comm": NAME[:15],
            "pid": process.pid,
            **labels,
        }.items() <= sample.labels.items()
        assert sample.delay >= shortest * sample.events
    counts = recorder.counts.as_json()
    assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]


@needs_bpftrace
@pytest.mark.system("bpftrace")
@pytest.mark.parametrize("tracker", [tracker.name for tracker in TRACKERS.values() if tracker.script])
def test_each_script_runs(tracker: str) -> None:
    probe(TRACKERS[tracker], BPFTRACE)


@needs_gcc
@pytest.mark.exhaustive
def test_a_storm_is_counted_and_bounded(binary: Path) -> None:
    """300,000 system calls over a threshold of 0: more than bpftrace can print."""
    with waiting(binary, "storm") as process:
        with tracking("syscall", {"threshold": "0", "pids": [process.pid]}, BPFTRACE) as (_, recorder):
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"stormed\n"
        counts = recorder.counts.as_json()
    assert counts["seen"] > 150_000  # the kernel skips a program while another runs
    assert counts["seen"] == counts["reported"] + counts["below"] + counts["dropped"]
    assert recorder.histogram.count == counts["seen"] - counts["table_full"] - counts["missed"]


@needs_bpftrace
@pytest.mark.system("bpftrace")
def test_a_running_script_can_not_be_changed() -> None:
    with tracking("irq", {}, BPFTRACE) as (session, _):
        before = session.settings
        with pytest.raises(NotSupported, match="bpftrace can't change a tracker while it runs"):
            session.change(before.changed({"threshold": "5ms"}))
        assert session.settings is before
        with pytest.raises(NotSupported, match="bpftrace can't list what is in flight"):
            session.in_flight()


@needs_bpftrace
@pytest.mark.system("bpftrace")
def test_over_http_and_in_the_command(tmp_path: Path) -> None:
    with Serving(tmp_path, "--latency-backend", "bpftrace") as agent:
        url, client = "/latency/irq", agent.client
        assert client.put(url, json={"timeout": "1s"}).status_code == 501
        assert client.put(url, json={}).json()["backend"] == "bpftrace"
        changed = client.patch(url, json={"threshold": "5ms"})
        assert changed.status_code == 501
        assert changed.json().startswith("bpftrace can't change a tracker while it runs")
        assert client.get(f"{url}/in-flight").status_code == 501
        assert client.get(url).json()["settings"]["threshold"] == "1ms"
        assert client.delete(url).status_code == 200
        assert agent.children() == []
    done = subprocess.run(
        [AGENT, "latency", "network", "--backend", "bpftrace"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "bpftrace can't run the tracker network; bcc can" in done.stderr


@needs_bpftrace
@pytest.mark.system("bpftrace")
def test_a_missing_tracepoint_is_named() -> None:
    known = TRACKERS["irq"]
    tracker = replace(known, script=known.script.replace("irq_handler_exit", "no_such"))
    with pytest.raises(ToolFailed, match="tracepoint not found: irq:no_such"):
        probe(tracker, BPFTRACE)


def test_a_missing_bpftrace_is_named() -> None:
    session = Session(TRACKERS["irq"], TrackerSettings(), BpftraceTrackers("/no/such/bpftrace"))
    with pytest.raises(ToolFailed, match="apt-get install bpftrace"):
        session.start()
