"""Reading a trace: its tree, the times in it, and texts in which no name does harm."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.profiles import profile_of_traces
from pgo_collector.traces.spans import PARTS, Span
from pgo_collector.traces.texts import chrome_of, dot_of, json_of, text_of
from pgo_collector.traces.trees import paths_of, tree_of
from pgo_collector.traces.waterfall import page_of, table_of
from pprof_merge import decode, merge
from pprof_proto.profile_pb2 import Profile

pytestmark = pytest.mark.any_store

EVIL = '<script>alert(1)</script>\x1b[31m"\\\n'


def span(id_: str, parent: str, start: int, end: int, name: str = "") -> Span:
    return Span(id_, parent, "http", name or id_, start, end, {})


def trace_of(*spans: Span) -> list[RequestTrace]:
    return [RequestTrace("ab" * 16, "shop", 204, spans)]


def test_self_time_is_what_no_step_below_covers() -> None:
    found = tree_of(
        trace_of(
            span("b", "a", 30, 50),
            span("a", "client", 0, 100),
            span("c", "a", 40, 60),
            span("d", "a", 90, 120),  # another clock
            span("e", "b", 30, 50),
        )
    )
    assert [(step.span.id, step.depth, step.self_nanos) for step in found] == [
        ("a", 0, 60),
        ("b", 1, 0),
        ("e", 2, 20),
        ("c", 1, 20),
        ("d", 1, 30),
    ]
    assert paths_of(found)[2] == ("a", "b", "e")


def test_a_proxy_by_a_coarse_clock_is_cut_to_what_the_client_measured() -> None:
    proxy = span("proxy", "send", 0, 150)._replace(part="proxy")
    found = tree_of(trace_of(span("request", "proxy", 20, 90), proxy, span("send", "", 10, 100)))
    assert [(step.span.id, step.span.start, step.span.end) for step in found] == [
        ("send", 10, 100),
        ("proxy", 10, 100),
        ("request", 20, 90),
    ]


def test_steps_that_are_each_others_parents_are_listed_once() -> None:
    found = tree_of(trace_of(span("a", "b", 0, 10), span("b", "a", 0, 10), span("c", "c", 0, 1)))
    assert sorted(step.span.id for step in found) == ["a", "b", "c"]


def test_a_deep_tree_is_no_deep_recursion() -> None:
    deep = [span(str(number), str(number - 1), 0, 10) for number in range(5000)]
    assert tree_of(trace_of(*deep))[-1].depth == 4999


class Tags(HTMLParser):
    """Counts the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in {"src", "href"}]


@pytest.fixture
def evil() -> list[RequestTrace]:
    """A trace in which every text is hostile."""
    hostile = Span("a", EVIL, "http", EVIL, 0, 10, {EVIL: EVIL}, EVIL)
    return [RequestTrace(EVIL, EVIL, 500, [hostile, hostile._replace(id="b", parent="a", part=EVIL)])]


def test_no_name_is_a_tag_of_the_page_and_nothing_is_loaded(evil: list[RequestTrace]) -> None:
    page = Tags()
    page.feed(page_of(EVIL, evil))
    assert "script" not in page.tags
    assert not page.links
    ET.fromstring(table_of(evil))  # noqa: S314 - our own


def test_every_color_of_a_bar_has_a_legend() -> None:
    spans = [span(part, "", 0, 10)._replace(part=part) for part in (*PARTS, "shop")]
    page = page_of("ab" * 16, trace_of(*spans))
    in_legend = re.findall(r'<li><svg aria-hidden="true"><rect class="(\w+)"[^>]*/></svg>\1</li>', page)
    assert in_legend == [*PARTS, "other"]
    assert {*re.findall(r'<rect class="(\w+)" x=', page)} == {*in_legend}
    colors = dict(re.findall(r"^\.(\w+) \{ fill: (#\w{6}) \}$", page, re.MULTILINE))
    assert colors.keys() == {*in_legend}
    assert len({*colors.values()}) == len(in_legend)


def test_no_name_breaks_out_of_the_other_forms(evil: list[RequestTrace]) -> None:
    for text in (text_of(evil), dot_of(evil)):
        assert "\x1b" not in text
    assert len(dot_of(evil).splitlines()) == 7
    (event, _) = json.loads(chrome_of(evil))["traceEvents"]
    assert event["name"].startswith("<script>")  # JSON, which no browser shows as HTML
    assert json.loads(json_of(evil))
    assert "\x1b" not in chrome_of(evil) + json_of(evil)


def test_steps_that_overlap_stand_in_rows_of_their_own() -> None:
    overlapping = trace_of(
        span("a", "", 0, 100), span("b", "a", 10, 50), span("c", "a", 20, 60), span("d", "a", 70, 80)
    )
    events = json.loads(chrome_of(overlapping))["traceEvents"]
    assert [(event["name"], event["tid"]) for event in events] == [("a", 0), ("b", 0), ("c", 1), ("d", 0)]


def test_steps_hold_each_other_in_chromes_format_when_a_reader_adds_up_their_times() -> None:
    """speedscope adds a duration to a start in floating point, and both are ns since 1970 divided by 1000."""
    bounds = [1_795_521_511_757_001_238 + 1_234_567 * at + 891 * at * at for at in range(41)]
    spans = [span("a", "", bounds[0], bounds[-1])]
    for at in range(40):
        begin, end = bounds[at : at + 2]
        spans += [span(f"b{at}", "a", begin, end), span(f"c{at}", f"b{at}", begin, end)]
    events = json.loads(chrome_of(trace_of(*spans)))["traceEvents"]
    assert {event["tid"] for event in events} == {0}
    times = {event["name"]: (float(event["ts"]), float(event["ts"]) + event["dur"]) for event in events}
    for at in range(40):
        assert times["a"][0] <= times[f"b{at}"][0] <= times[f"c{at}"][0]
        assert times["a"][1] >= times[f"b{at}"][1] >= times[f"c{at}"][1]
        assert at == 39 or times[f"b{at}"][1] <= times[f"b{at + 1}"][0]
        assert times[f"b{at}"][1] - times[f"b{at}"][0] == pytest.approx(
            (bounds[at + 1] - bounds[at]) / 1000, abs=1
        )


def test_traces_as_a_profile_have_the_self_times_of_all_requests() -> None:
    one = trace_of(span("1", "", 100, 200, "GET /v1/merge"), span("2", "1", 120, 160, "sum"))
    other = trace_of(span("3", "", 300, 350, "GET /v1/merge"), span("4", "3", 310, 320, "sum"))
    profile = Profile.FromString(profile_of_traces([*one, *other]))
    texts = [text.decode() for text in profile.string_table]
    names = {
        location.id: texts[profile.function[location.line[0].function_id - 1].name]
        for location in profile.location
    }
    found = {tuple(names[id_] for id_ in sample.location_id): [*sample.value] for sample in profile.sample}
    assert found == {("GET /v1/merge",): [2, 100], ("sum", "GET /v1/merge"): [2, 50]}
    assert [texts[kind.type] for kind in profile.sample_type] == ["steps", "time"]
    assert (profile.time_nanos, profile.duration_nanos) == (100, 250)
    merged = merge([decode(profile_of_traces(one)), decode(profile_of_traces(other))])
    assert len(merged.samples) == 2
