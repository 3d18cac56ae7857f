"""Functions as metrics, over HTTP: by the rules of a file, from what is stored, beside `go tool pprof`."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from pgo_collector.engine import function_seconds
from pgo_collector.engine.validation import SubmittedBody, ValidatedBody, validate_bodies
from pprof_merge import Limits, decode, encode, merge
from pprof_proto.profile_pb2 import Profile

from tests.collector.edits import edited
from tests.collector.pushing import assert_pushed, one, push
from tests.faults.stacks import EPOCH, profile_of
from tests.merge.go_top import go_top
from tests.merge.stacked import heap_of, stacked
from tests.server import Server

pytestmark = pytest.mark.any_store
Samples = dict[str, float]
Pattern = tuple[Literal["function", "package"], str]

RULES = r"""
[[rule]]
name = "malloc"
function = '^runtime\.mallocgc$'
service = "default"

[[rule]]
name = "runtime"
package = '^runtime$'
by = "version"

[[rule]]
name = "waits"
function = "lock"
type = "offcpu"
"""


@pytest.fixture
def rules(stopped: Server) -> Path:
    """Return the file of rules of a collector that isn't running."""
    file = stopped.home / "functions.toml"
    file.write_text(RULES)
    stopped.environment |= {"PGOF_FUNCTION_METRICS_FILE": str(file), "PGOF_METRICS_OPEN": "true"}
    return file


@pytest.fixture
def server(stopped: Server, rules: Path) -> Server:
    """Start a collector with these rules."""
    assert rules.exists()
    stopped.start()
    return stopped


def scraped(server: Server) -> Samples:
    """Return the value of each series of functions, by its name without the prefix, and its labels."""
    lines = re.findall(r"^pgo_function_(\S.*) (\S+)$", server.client.get("/metrics").text, re.MULTILINE)
    return {series: float(value) for series, value in lines}


def failed(server: Server) -> dict[str, float]:
    """Return how many profiles couldn't be measured, by those reasons that there were."""
    pattern = r'^pgo_collector_function_metrics_failed_total{reason="(\w+)"} (\S+)$'
    found = re.findall(pattern, server.client.get("/metrics").text, re.MULTILINE)
    return {reason: float(count) for reason, count in found if float(count)}


def test_they_are_the_sums_that_go_shows(server: Server, go_profiles: list[bytes], tmp_path: Path) -> None:
    before = scraped(server)
    assert before == {
        f'malloc_{name}_total{{service="default"}}': 0
        for name in ("seconds", "self_seconds", "profiled_seconds")
    }
    for profile in (*go_profiles, *go_profiles):  # the same again doesn't count again
        assert server.submit(profile, query={"labels": "version=1"}).status_code == 204
    merged = encode(merge(map(decode, go_profiles)))
    flat, cum = go_top(merged, tmp_path, "cpu", "nanoseconds")["runtime.mallocgc"]
    total = int(decode(merged).samples.values[:, 1].sum())
    assert cum > flat > 0
    found = scraped(server)
    assert {name: found[name] for name in found if name.startswith("malloc")} == pytest.approx(
        {
            'malloc_seconds_total{service="default"}': cum / 1e9,
            'malloc_self_seconds_total{service="default"}': flat / 1e9,
            'malloc_profiled_seconds_total{service="default"}': total / 1e9,
            'malloc_share{service="default"}': cum / total,
        }
    )
    (tmp_path / "focused").mkdir()
    # All of the stacks that have a function of the package are below one of these.
    focused = go_top(merged, tmp_path / "focused", "cpu", "nanoseconds", r"-focus=^runtime\.[^/]*$")
    inside = sum(flat for flat, _ in focused.values())
    package = sum(flat for name, (flat, _) in focused.items() if name.startswith("runtime."))
    labels = '{service="default",version="1"}'
    assert found[f"runtime_seconds_total{labels}"] == pytest.approx(inside / 1e9)
    assert found[f"runtime_self_seconds_total{labels}"] == pytest.approx(package / 1e9)
    assert failed(server) == {}
    server.restart()
    assert server.submit(go_profiles[0], query={"labels": "version=1"}).status_code == 204
    assert scraped(server) == before


@pytest.mark.system("promtool")
def test_prometheus_takes_them(server: Server, go_profiles: list[bytes]) -> None:
    for number, profile in enumerate(go_profiles):
        server.submit(profile, query={"labels": f'version="{number}\\'})
    text = server.client.get("/metrics").text
    finished = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (finished.returncode, finished.stdout + finished.stderr) == (0, "")
    assert len(scraped(server)) == 4 * (1 + len(go_profiles))


def test_pushed_profiles_count_by_their_own_labels(server: Server) -> None:
    for second, version in enumerate(("1", "1", "2")):
        profile = profile_of("runtime.mallocgc", time_nanos=EPOCH + second)
        assert_pushed(push(server, one(profile, "shop", version=version)))
        assert_pushed(push(server, one(profile, "shop", version=version)))
    found = scraped(server)
    assert found['runtime_seconds_total{service="shop",version="1"}'] == pytest.approx(0.02)
    assert found['runtime_share{service="shop",version="2"}'] == 1
    assert found['malloc_seconds_total{service="default"}'] == 0


def test_only_the_type_of_a_rule_counts(server: Server) -> None:
    server.submit(stacked({"main;lock": 3, "main": 1}), query={"type": "offcpu"})
    server.submit(stacked({"main;lock": 3, "main": 1}), query={"type": "wall"})
    found = scraped(server)
    assert {name: value for name, value in found.items() if "default" in name and "malloc" not in name} == {
        'waits_seconds_total{service="default"}': 0.03,
        'waits_self_seconds_total{service="default"}': 0.03,
        'waits_profiled_seconds_total{service="default"}': 0.04,
        'waits_share{service="default"}': 0.75,
    }


def test_a_profile_that_cannot_be_measured_is_stored_and_told(server: Server) -> None:
    for content in (heap_of({"main;lock": (1, 2, 3, 4)}), stacked({"lock": -1}), stacked({"lock": 2})):
        assert server.submit(content, query={"type": "offcpu"}).status_code == 204
    assert failed(server) == {"no_time": 1, "values": 1}
    assert scraped(server)['waits_seconds_total{service="default"}'] == 0.02


def test_values_of_labels_beyond_the_bound_are_counted_as_others(server: Server) -> None:
    for number in range(70):
        profile = profile_of("runtime.mallocgc", time_nanos=EPOCH + number)
        assert server.submit(profile, query={"labels": f"version={number}"}).status_code == 204
    found = {name: value for name, value in scraped(server).items() if name.startswith("runtime_seconds")}
    assert len(found) == 65
    assert found['runtime_seconds_total{service="other",version="other"}'] == pytest.approx(0.06)
    assert sum(found.values()) == pytest.approx(0.7)


def test_the_file_is_read_again_and_a_bad_one_changes_nothing(server: Server, rules: Path) -> None:
    def is_outdated() -> bool:
        return "\npgo_collector_function_rules_outdated 1.0\n" in server.client.get("/metrics").text

    server.submit(profile_of("lock"), query={"type": "offcpu"})
    before = scraped(server)
    assert before['waits_seconds_total{service="default"}'] == 0.01
    rules.write_text(RULES.replace('"lock"', "'('"))
    refused = server.wait_for_log("function rules not used")
    assert refused["reason"].startswith("line 12: the regular expression '(' can't be used")
    assert (is_outdated(), scraped(server)) == (True, before)
    assert "functions    fails" in server.run("check").stdout
    rules.unlink()
    assert server.wait_for_log("function rules not used", 2)["reason"] == "No such file or directory"
    rules.write_text(RULES.replace('"malloc"', '"malloced"'))
    assert server.wait_for_log("function rules read", 2)["count"] == 3
    assert not is_outdated()
    found = scraped(server)
    assert found['waits_seconds_total{service="default"}'] == 0.01  # the rule is the same, and so is its sum
    assert {name.partition("_")[0] for name in found} == {"malloced", "waits"}


def test_a_start_does_not_need_the_file(stopped: Server, rules: Path) -> None:
    rules.write_text("rule")
    stopped.start()
    assert stopped.submit(profile_of("lock"), query={"type": "offcpu"}).status_code == 204
    assert scraped(stopped) == {}
    rules.write_text(RULES)
    stopped.wait_for_log("function rules read")
    stopped.submit(profile_of("lock", time_nanos=EPOCH + 1), query={"type": "offcpu"})
    assert scraped(stopped)['waits_seconds_total{service="default"}'] == 0.01


def measured(content: bytes, *patterns: Pattern) -> function_seconds.Measured:
    (validated,) = validate_bodies([SubmittedBody(content, "offcpu", patterns)], Limits())
    assert isinstance(validated, ValidatedBody)
    return validated.measured


def measured_in_the_end(content: bytes, *patterns: Pattern) -> function_seconds.Measured:
    """Return what is measured when all names are known: each body has 0.1 s of CPU time for new ones."""
    for _ in range(500):
        if (found := measured(content, *patterns)) != "new_names":
            break
    return found


def test_very_many_new_names_take_bounded_time_and_are_there_in_the_end() -> None:
    """Each body takes up to 0.1 s of CPU time for new names, and the next one goes on from there."""
    names = [f"{number}.{'a' * 400}" for number in range(8_000)]
    content = gzip.compress(
        stacked({";".join(names[begin : begin + 100]): 1 for begin in range(0, 8_000, 100)}), 1
    )
    patterns: list[Pattern] = [("function", f"^7{'.*a' * 20}.*{number}$") for number in range(31)]
    every: Pattern = ("package", r"^1\d*$")
    first = measured(content, every, *patterns)
    assert first == "new_names"
    found = measured_in_the_end(content, every, *patterns)
    assert isinstance(found, function_seconds.FunctionSeconds)
    assert found.inside[0] == 0.12


def test_frames_that_a_profile_drops_are_in_no_metric() -> None:
    def dropping(profile: Profile) -> None:
        profile.drop_frames = len(profile.string_table)
        profile.string_table.append(b"lock|slow")

    content = edited(gzip.compress(stacked({"main;lock;slow": 2, "main": 1, "lock": 1})), dropping)
    patterns: list[Pattern] = [("function", text) for text in ("lock", "main")]
    assert measured(content, *patterns) == (0.04, (0.01, 0.03), (0.01, 0.03))
    large = stacked({f"main;{number}": 1 for number in range(5000)})
    assert measured(edited(gzip.compress(large), dropping), *patterns) == "new_names"
    assert measured_in_the_end(large, *patterns) == (50, (0, 50), (0, 0))
