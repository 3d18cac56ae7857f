"""Lists for Grafana: profile types, labels and series of stored profiles, by selectors and times."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from pgo_collector.routes.pyroscope import querier_pb2 as messages

from tests.collector.pushing import JSON, assert_pushed, one, push, refused
from tests.collector.querying import CPU, SAMPLES, ask_json, call, post
from tests.constants import QUERY_LABELS
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of
from tests.server import Server

NOW_MS = EPOCH // 10**6
DAY_MS = DAY // 10**6


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a collector with profiles of three services and four types, over two days."""
    server = Server(tmp_path_factory.mktemp("filled"))
    for file in (server.submit_keys, server.merge_keys):
        file.write_text(f"{file.read_text()}key-of-shop service=shop\nkey-of-none service=absent\n")
    server.environment[QUERY_LABELS] = "12"
    server.start()
    for number, (labels, time) in enumerate(
        [("region=eu,pod=a1", 0), ("region=eu,pod=a2", SECOND), ("region=us,pod=b1", DAY), ("pod=c1", DAY)]
    ):
        profile = profile_of(f"shop{number}", time_nanos=EPOCH + time)
        query = {"service": "shop", "labels": labels}
        assert server.submit(profile, query=query).status_code == 204
    for name in ("memory", "fgprof", "wall"):
        assert_pushed(
            push(
                server,
                one(
                    profile_of(name, type_="wall"),
                    "team/till",
                    name,
                    **{"k8s.pod": "t", "__delta__": "false"},
                ),
            )
        )
    block = profile_of("block", type_="delay")
    assert server.submit(block, query={"service": "bank", "type": "block"}).status_code == 204
    yield server
    server.kill()


def values(server: Server, name: str, *matchers: str, key: str = Server.merge_key, **times: int) -> list[str]:
    answer = call(
        server, "LabelValues", messages.LabelValuesResponse, key, name=name, matchers=matchers, **times
    )
    return [*answer.names]


def test_profile_types_are_listed(filled: Server) -> None:
    answer = call(filled, "ProfileTypes", messages.ProfileTypesResponse)
    ids = [each.ID for each in answer.profile_types]
    assert {CPU, SAMPLES, "memory:inuse_space:bytes:space:bytes"} <= {*ids}
    assert "block_total:delay:nanoseconds:contentions:count" in ids
    # What these measure was read from a profile.
    assert {"fgprof:samples:count:wall:nanoseconds", "wall:wall:nanoseconds:wall:nanoseconds"} <= {*ids}
    assert ids == sorted({*ids})
    for each in answer.profile_types:
        parts = [each.name, each.sample_type, each.sample_unit, each.period_type, each.period_unit]
        assert ":".join(parts) == each.ID
    earlier = call(
        filled, "ProfileTypes", messages.ProfileTypesResponse, start=NOW_MS - DAY_MS, end=NOW_MS - 1
    )
    assert not earlier.profile_types


def test_label_names_and_values(filled: Server) -> None:
    answer = call(filled, "LabelNames", messages.LabelNamesResponse, matchers=['{service_name="shop"}'])
    assert {"pod", "region", "service_name", "__profile_type__", "__name__"} <= {*answer.names}
    assert "k8s.pod" not in answer.names
    every = call(filled, "LabelNames", messages.LabelNamesResponse, matchers=["{}"])
    assert {"pod", "k8s.pod"} <= {*every.names}
    assert "profile_name" not in every.names
    for name in ("service_name", "__service_name__"):
        assert name in every.names
        assert values(filled, name) == ["bank", "shop", "team/till"]
    assert values(filled, "pod") == ["a1", "a2", "b1", "c1"]
    assert values(filled, "k8s.pod") == values(filled, "k8s_pod") == ["t"]
    assert values(filled, "__name__") == ["block_total", "fgprof", "memory", "process_cpu", "wall"]
    assert values(filled, "absent") == []


@pytest.mark.parametrize(
    ("selector", "pods"),
    [
        ("", ["a1", "a2", "b1", "c1"]),
        ("{}", ["a1", "a2", "b1", "c1"]),
        ('{region="eu"}', ["a1", "a2"]),
        ('{region!="eu"}', ["b1", "c1"]),
        ('{region=""}', ["c1"]),
        ('{region!=""}', ["a1", "a2", "b1"]),
        ('{pod=~"a.*"}', ["a1", "a2"]),
        ('{pod=~"a"}', []),
        ('{pod!~"a.*|c1"}', ["b1"]),
        ('{region=~".*"}', ["a1", "a2", "b1", "c1"]),
        ('{region=~".+"}', ["a1", "a2", "b1"]),
        ('{ pod =~ "a.*" , region != "us", }', ["a1", "a2"]),
        ("{pod='b1'}", ["b1"]),
        ("{pod=~`\\w1`}", ["a1", "b1", "c1"]),
        ('{"pod"="\\u0061\\x31"}', ["a1"]),
        (f'{{__profile_type__="{CPU}"}}', ["a1", "a2", "b1", "c1"]),
        ('{__name__="memory"}', []),
        ('{service_name=~"sh.p"}', ["a1", "a2", "b1", "c1"]),
        ('{service_name="till"}', []),
        ('{__service_name__="shop",pod!="b1"}', ["a1", "a2", "c1"]),
    ],
)
def test_selectors_are_promqls(filled: Server, selector: str, pods: list[str]) -> None:
    assert values(filled, "pod", selector) == pods


def test_one_of_several_selectors_has_to_match(filled: Server) -> None:
    assert values(filled, "pod", '{pod="a1"}', '{region="us"}') == ["a1", "b1"]


def test_times_are_in_ms_and_included(filled: Server) -> None:
    assert values(filled, "pod", start=NOW_MS, end=NOW_MS) == ["a1"]
    assert values(filled, "pod", start=NOW_MS + 1, end=NOW_MS + DAY_MS) == ["a2", "b1", "c1"]
    assert values(filled, "pod", start=-(1 << 63), end=(1 << 63) - 1) == ["a1", "a2", "b1", "c1"]


def test_series_are_distinct_sets_of_labels(filled: Server) -> None:
    names = ["service_name", "__profile_type__"]
    answer = ask_json(filled, "Series", labelNames=names, matchers=['{service_name="shop"}'])
    sets = [{label["name"]: label["value"] for label in each["labels"]} for each in answer["labelsSet"]]
    assert sets == [{"service_name": "shop", "__profile_type__": each} for each in (CPU, SAMPLES)]
    answer = ask_json(filled, "Series", labelNames=["__service_name__"], matchers=["{}"])
    assert [label["value"] for each in answer["labelsSet"] for label in each["labels"]] == [
        "bank", "shop", "team/till"
    ]  # fmt: skip
    answer = call(filled, "Series", messages.SeriesResponse, matchers=['{pod="a1"}'])
    (first, _) = [{label.name: label.value for label in each.labels} for each in answer.labels_set]
    assert first == {
        "__name__": "process_cpu",
        "__profile_type__": CPU,
        "pod": "a1",
        "region": "eu",
        "service_name": "shop",
    }


def test_a_call_names_few_labels(filled: Server) -> None:
    """Each name was a statement: 367 bytes, compressed, took 0.9 s."""
    once, often = (ask_json(filled, "Series", labelNames=["pod"] * times) for times in (1, 1000))
    assert often == once
    names = [f"name{number}" for number in range(101)]
    for method, field in (("Series", "label_names"), ("SelectSeries", "group_by")):
        body = json.dumps({field: names, "profile_typeID": CPU, "step": 60}).encode()
        text = refused(post(filled, method, body, **JSON), 400, "invalid_argument")
        assert f"{field}: 101 names of labels; the limit is 100" in text


def test_a_combined_profile_keeps_its_series(stopped: Server) -> None:
    stopped.environment |= {
        "PGOF_ROLLUP_DAYS": "1",
        "PGOF_ROLLUP_LABELS": "region",
        "PGOF_UPKEEP_SECONDS": "0.2",
    }
    stopped.start()
    for pod in ("a", "b"):
        query = {"service": "shop", "labels": f"region=eu,pod={pod}"}
        assert stopped.submit(profile_of(pod), query=query).status_code == 204
    stopped.wait_for_log("days rolled up")
    assert values(stopped, "pod") == ["a", "b"]
    assert values(stopped, "pod", start=NOW_MS, end=NOW_MS) == ["a", "b"]


def test_a_key_sees_its_services_only(filled: Server) -> None:
    assert values(filled, "service_name", key="key-of-shop") == ["shop"]
    assert values(filled, "k8s.pod", key="key-of-shop") == []
    assert "k8s.pod" not in call(filled, "LabelNames", messages.LabelNamesResponse, "key-of-shop").names
    listed = call(filled, "ProfileTypes", messages.ProfileTypesResponse, "key-of-shop")
    assert {each.name for each in listed.profile_types} == {"process_cpu"}
    assert call(filled, "LabelNames", messages.LabelNamesResponse, "key-of-none").names == []
    stats = call(filled, "GetProfileStats", messages.GetProfileStatsResponse, "key-of-none")
    assert not stats.data_ingested
    stats = call(filled, "GetProfileStats", messages.GetProfileStatsResponse, "key-of-shop")
    assert (stats.oldest_profile_time, stats.newest_profile_time) == (NOW_MS, NOW_MS + DAY_MS)
    refused(post(filled, "ProfileTypes", b"", "wrong"), 401, "unauthenticated")
    refused(post(filled, "ProfileTypes", b"", Server.submit_key), 401, "unauthenticated")


def test_a_gzip_body_is_read(filled: Server) -> None:
    body = gzip.compress(messages.LabelValuesRequest(name="pod").SerializeToString())
    answer = post(filled, "LabelValues", body, Content_Encoding="gzip")
    assert [*messages.LabelValuesResponse.FromString(answer.content).names] == ["a1", "a2", "b1", "c1"]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("{", "can't be read"),
        ("pod", "can't be read"),
        ('{pod="a"', "can't be read"),
        ('{pod=="a"}', "can't be read"),
        ('{pod="a" region="b"}', "can't be read"),
        ('{pod=~"("}', "missing )"),
        ('{pod=~"(a{1000}){1000}"}', "can't be used"),
        ('{pod=~"' + "a" * 1001 + '"}', "longer than 1,000"),
        ('{pod="' + "a" * 8000 + '"}', "longer than 8,000"),
        ("{" + 'a="b",' * 33 + "}", "the limit is 32"),
        ('{pod="\\ud800"}', "no character"),
    ],
)
def test_a_selector_that_cannot_be_used_is_refused(filled: Server, selector: str, why: str) -> None:
    body = messages.LabelValuesRequest(name="pod", matchers=[selector]).SerializeToString()
    assert why in refused(post(filled, "LabelValues", body), 400, "invalid_argument")


def test_selectors_are_bounded_and_their_escapes_read(filled: Server) -> None:
    body = messages.LabelValuesRequest(name="pod", matchers=["{}"] * 33).SerializeToString()
    said = refused(post(filled, "LabelValues", body), 400, "invalid_argument")
    assert "33 selectors; the limit is 32" in said
    for selector, found in {
        r'{pod="\x61\u0031"}': ["a1"],
        r'{pod!="a1\n"}': ["a1", "a2", "b1", "c1"],
        r'{"\x70od"="b\1"}': ["b1"],
    }.items():
        assert values(filled, "pod", selector) == found


def test_what_is_not_the_message_is_refused(filled: Server) -> None:
    assert "isn't a querier.v1" in refused(post(filled, "Series", b"\xff"), 400, "invalid_argument")
    assert "isn't a querier.v1" in refused(post(filled, "Series", b"[1]", **JSON), 400, "invalid_argument")
    refused(post(filled, "Series", b"{}", Content_Type="text/plain"), 415, "invalid_argument")
    bomb = gzip.compress(bytes(1 << 20))
    refused(post(filled, "Series", bomb), 400, "invalid_argument")
    refused(post(filled, "Series", b"a" * (1 << 20)), 400, "invalid_argument")
    times = messages.SeriesRequest(start=2, end=1).SerializeToString()
    assert "before end" in refused(post(filled, "Series", times), 400, "invalid_argument")


@pytest.mark.parametrize("method", ["SelectHeatmap", "AnalyzeQuery"])
def test_other_calls_are_unimplemented(filled: Server, method: str) -> None:
    refused(post(filled, method, b""), 501, "unimplemented")


def test_a_large_answer_is_refused_with_the_name_of_the_setting(stopped: Server) -> None:
    stopped.environment[QUERY_LABELS] = "3"
    stopped.start()
    for number in range(4):
        query = {"service": "shop", "labels": f"pod={number}"}
        assert stopped.submit(profile_of(f"f{number}"), query=query).status_code == 204
    body = messages.LabelValuesRequest(name="pod").SerializeToString()
    assert "the limit is 3" in refused(post(stopped, "LabelValues", body), 400, "invalid_argument")
    body = messages.SeriesRequest(label_names=["pod"]).SerializeToString()
    assert "the limit is 3" in refused(post(stopped, "Series", body), 400, "invalid_argument")
