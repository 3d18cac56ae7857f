"""Test what becomes of the events that perf can sample, by its text and in real recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pgo_agent.errors import NotReadable
from pgo_agent.native import native_profile
from pgo_agent.native.perf_script import Sample, parse, read_samples, recording_of, samples_of, types_of
from pgo_agent.profile_builder import CPU_TYPES
from pprof_proto.profile_pb2 import Profile

from tests.agent.native.perf_data import of_hardware, recorded, with_branches
from tests.agent.serving import parsed

SAMPLES = ("samples", "count")


def samples(*events: str, period: int = 1) -> list[Sample]:
    """Return samples of events, as perf prints them."""
    printed = (f"x  1/1  2.000000000:  {period} {event:>20}: \n\t 10 main (/a)\n\n" for event in events)
    return list(parse("".join(printed).split("\n")))


@pytest.mark.parametrize(
    ("printed", "event", "types"),
    [
        ("cpu-clock", "cpu-clock", CPU_TYPES),
        ("cpu-clock:u", "cpu-clock:u", CPU_TYPES),
        ("task-clock:uppp", "task-clock:u", CPU_TYPES),
        ("cycles", "cycles", (SAMPLES, ("cycles", "count"))),
        ("cycles:P", "cycles", (SAMPLES, ("cycles", "count"))),
        ("cycles:uppp", "cycles:u", (SAMPLES, ("cycles", "count"))),
        ("cpu_core/cycles/", "cycles", (SAMPLES, ("cycles", "count"))),
        ("cpu_atom/cycles/Pu", "cycles:u", (SAMPLES, ("cycles", "count"))),
        ("cpu/cpu-cycles/ku", "cpu-cycles:uk", (SAMPLES, ("cpu-cycles", "count"))),
        ("armv8_pmuv3_0/inst_retired/", "inst_retired", (SAMPLES, ("inst_retired", "count"))),
        ("instructions:ppp", "instructions", (SAMPLES, ("instructions", "count"))),
        (
            "BR_INST_RETIRED.NEAR_TAKEN:u",
            "BR_INST_RETIRED.NEAR_TAKEN:u",
            (SAMPLES, ("BR_INST_RETIRED.NEAR_TAKEN", "count")),
        ),
        ("cache-misses:u", "cache-misses:u", (("cache-misses", "count"),)),
        ("branch-misses", "branch-misses", (("branch-misses", "count"),)),
        ("page-faults:u", "page-faults:u", (("page-faults", "count"),)),
        ("context-switches", "context-switches", (("context-switches", "count"),)),
        ("sched:sched_switch", "sched:sched_switch", (("sched:sched_switch", "count"),)),
        ("probe_p:burn:u", "probe_p:burn:u", (("probe_p:burn", "count"),)),
        ("cpu/event=0x3c,umask=0/u", "cpu/event=0x3c,umask=0/:u", (("cpu/event=0x3c,umask=0/", "count"),)),
        ("ibs_op//", "ibs_op//", (("ibs_op//", "count"),)),
        ("r01c2:u", "r01c2:u", (("r01c2", "count"),)),
        ("mem:0x401000:rw", "mem:0x401000:rw", (("mem:0x401000:rw", "count"),)),
        (":/:/", ":/:/", ((":/:/", "count"),)),
        ("::", "::", (("::", "count"),)),
    ],
)
def test_an_event_has_one_name_in_all_spellings_and_the_types_that_fit(
    printed: str, event: str, types: tuple[tuple[str, str], ...]
) -> None:
    """Compilers read `samples` for how often code ran, so a page fault must not be one."""
    (sample,) = samples(printed)
    assert sample.event == event
    assert samples_of([sample], printed) == [sample]
    assert types_of(sample.event) == types


def test_cores_of_both_kinds_count_the_same_event() -> None:
    both = samples("cpu_core/cycles/u", "cpu_atom/cycles/u")
    assert samples_of(both, "") == both


def test_one_of_several_events_is_chosen_by_its_name() -> None:
    every = samples("cycles", "cycles:u", "instructions:u", "cycles:u")
    assert samples_of(every, "cycles") == [every[0]]
    assert samples_of(every, "cycles:u") == samples_of(every, "cpu/cycles/u") == [every[1], every[3]]
    assert samples_of(every, "instructions") == [every[2]]
    found = r"cycles:u \(2\), cycles \(1\), instructions:u \(1\)"
    with pytest.raises(ValueError, match=rf"^it has samples of several events, choose .* --event: {found}$"):
        samples_of(every, "")
    with pytest.raises(ValueError, match=rf"^it has no samples of page-faults, but of: {found}$"):
        samples_of(every, "page-faults")


def test_an_error_names_a_few_of_very_many_events() -> None:
    every = samples(*(f"r{number}" for number in range(5000)))
    with pytest.raises(ValueError, match="choose one") as refused:
        samples_of(every, "")
    assert len(str(refused.value)) < 200


def test_nothing_is_no_event_but_may_be_a_recording() -> None:
    assert samples_of([], "") == []
    with pytest.raises(ValueError, match=r"^it has no samples of cycles, but of: none$"):
        samples_of([], "cycles")


def test_only_the_chosen_event_needs_stacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "perf").write_text(
        '#!/bin/sh\n[ "$1" = evlist ] && exit 1\n'
        "echo 'x  1/1  2.000000000:   1 cycles:     401000 main (/a)'\n"
        "echo 'x  1/1  3.000000000:   1 page-faults: '\nprintf '\\t 10 main (/a)\\n\\n'\n"
    )
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (sample,) = read_samples(tmp_path, event="page-faults")
    assert [frame.symbol for frame in sample.stack.frames] == ["main"]
    with pytest.raises(NotReadable, match=r"samples of cycles have no stacks: record with -g,.* lbr$"):
        read_samples(tmp_path, event="cycles")


def test_the_period_is_the_mean_and_only_clocks_add_it_to_the_time() -> None:
    counted = [*samples("cycles", period=1), *samples("cycles", period=2_000_000)]
    assert [(of.period, of.duration) for of in (recording_of(counted, 10**18),)] == [(1_000_000, 0)]
    clocked = samples("cpu-clock", "cpu-clock", period=250_000)
    assert [(of.period, of.duration) for of in (recording_of(clocked, 10**18),)] == [(250_000, 250_000)]


@pytest.mark.system("perf", "llvm-cxxfilt", "llvm-symbolizer")
@pytest.mark.parametrize(
    ("event", "options", "period", "types"),
    [
        ("task-clock", ("-c", "200000"), 200_000, ["samples/count", "cpu/nanoseconds"]),
        ("cpu-clock:u", ("-F", "1000"), 1_000_000, ["samples/count", "cpu/nanoseconds"]),
        ("page-faults", ("-c", "10", "--call-graph", "dwarf"), 10, ["page-faults/count"]),
        ("context-switches", ("-c", "1"), 1, ["context-switches/count"]),
    ],
)
def test_a_recording_of_an_event_is_a_profile_of_it(
    event: str, options: tuple[str, ...], period: int, types: list[str], tmp_path: Path
) -> None:
    file = recorded(tmp_path / "perf.data", "-g", "-e", event, *options)
    profile = parsed(native_profile(recording_of(read_samples(file), 10**18)))
    assert profile.period == period
    assert _types(profile) == types
    amounts = [sample.value[-1] for sample in profile.sample]
    assert amounts
    assert sum(amounts) % period == 0


@pytest.mark.system("perf", "root")
def test_tracepoints_are_counted(tmp_path: Path) -> None:
    events = ("-e", "sched:sched_process_exec", "-e", "sched:sched_process_exit")
    file = recorded(tmp_path / "perf.data", "-g", *events, "-c", "1")
    exits = read_samples(file, event="sched:sched_process_exit")
    assert exits
    assert {(sample.event, sample.period) for sample in exits} == {("sched:sched_process_exit", 1)}
    assert all(sample.stack.frames for sample in exits)


@pytest.mark.system("perf", "llvm-cxxfilt", "llvm-symbolizer")
def test_cycles_of_a_cpu_are_samples_for_compilers(tmp_path: Path) -> None:
    file = recorded(tmp_path / "perf.data", "-g", "-e", "cpu-clock")
    clocked = read_samples(file)
    of_hardware(file, b"cycles")
    with_branches(file)
    cycles = read_samples(file)
    assert [sample.stack for sample in cycles] == [sample.stack for sample in clocked]
    assert _types(parsed(native_profile(recording_of(cycles, 10**18)))) == ["samples/count", "cycles/count"]


@pytest.mark.system("perf")
def test_branch_records_without_stacks_are_named(tmp_path: Path) -> None:
    file = recorded(tmp_path / "perf.data", "-e", "cpu-clock")
    of_hardware(file, b"cycles")
    with_branches(file)
    said = r"of cycles have no stacks: .*; convert its branch records \(perf record -b\) with --branches$"
    with pytest.raises(NotReadable, match=said):
        read_samples(file)


def _types(profile: Profile) -> list[str]:
    texts = profile.string_table
    return [f"{texts[of.type].decode()}/{texts[of.unit].decode()}" for of in profile.sample_type]
