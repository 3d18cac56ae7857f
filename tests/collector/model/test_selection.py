"""Selections by service, type, labels and time: where profiles are stored, and which of them are found."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.collector.own_service import OwnService
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of, tally

if TYPE_CHECKING:
    from tests.server import Server


def found(server: Server, **query: str) -> dict[str, int]:
    """Return the tally of a merge; an empty one if there is nothing to merge."""
    answer = server.merge(query={name.rstrip("_"): value for name, value in query.items()})
    assert answer.status_code in {200, 404}, answer.text
    return dict(tally(answer.content)) if answer.status_code == 200 else {}


def store(server: Server, profile: bytes, **query: str) -> None:
    answer = server.submit(profile, query=query)
    assert answer.status_code == 204, answer.text


def written(time_nanos: int) -> str:
    return datetime.fromtimestamp(time_nanos // SECOND, UTC).isoformat()


def test_services_are_apart(server: Server) -> None:
    store(server, profile_of("a"))
    store(server, profile_of("b"), service="checkout")
    store(server, profile_of("c"), service="default")
    assert found(server) == found(server, service="default") == {"a": 1, "c": 1}
    assert found(server, service="checkout") == {"b": 1}
    assert found(server, service="other") == {}


def test_types_are_apart_and_only_cpu_is_strict(server: Server) -> None:
    assert server.submit(profile_of("a", type_="wall")).status_code == 400
    assert server.submit(profile_of("a", type_="wall"), query={"type": "cpu"}).status_code == 400
    store(server, profile_of("a", type_="wall"), type="offcpu")
    store(server, profile_of("b"), type="offcpu")
    store(server, profile_of("c", type_="wall"), type="offcpu")
    assert found(server) == {}
    answer = server.merge(query={"type": "offcpu"})
    assert tally(answer.content) == {"a": 1, "c": 1}
    assert "period types" in answer.headers["PGO-Left-Out"]
    for path in ("/v1/submit", "/v1/merge"):
        refused = server.client.request(
            "POST", path, params={"type": "CPU"}, headers={"Authorization": f"Bearer {server.submit_key}"}
        )
        assert refused.status_code in {400, 403}
    assert "give one of cpu, heap" in server.merge(query={"type": "all"}).json()["detail"]


@pytest.fixture(scope="module")
def labelled(shared: Server) -> Server:
    for name, labels in {
        "eu1": "region=eu,version=1",
        "eu2": "version=2,region=eu",
        "us2": "region=us,version=2",
        "none": "",
        "odd": "region=a%2Cb%3Dc,zone=%7C",
    }.items():
        store(shared, profile_of(name), service="labelled", labels=labels)
    return shared


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("", "eu1 eu2 us2 none odd"),
        ("region=eu", "eu1 eu2"),
        ("region=eu,version=2", "eu2"),
        ("region!=eu", "us2 none odd"),
        ("region=eu|us", "eu1 eu2 us2"),
        ("region!=eu|us", "none odd"),
        ("region=", "none"),
        ("region!=", "eu1 eu2 us2 odd"),
        ("region=|us", "us2 none"),
        ("region=a%2Cb%3Dc", "odd"),
        ("zone=%7C", "odd"),
        ("version!=1,region=eu", "eu2"),
        ("region=EU", ""),
        ("other=1", ""),
    ],
)
def test_labels(labelled: Server, labels: str, names: str) -> None:
    assert found(labelled, service="labelled", labels=labels) == dict.fromkeys(names.split(), 1)


def test_the_same_profile_of_two_series_counts_in_each(own: OwnService) -> None:
    for labels in ("a=1", "a=2", "a=1", "", "a="):
        store(own, profile_of("x"), labels=labels)
    assert found(own) == {"x": 3}
    assert found(own, labels="a=1") == {"x": 1}
    assert tally(own.combine().content) == {"x": 3}
    assert found(own, labels="a=2") == {"x": 1}


def test_a_selection_finds_the_same_in_whatever_order_profiles_came(server: Server) -> None:
    profiles = [(f"{hour}", EPOCH + hour * DAY // 24, f"a={hour % 2}") for hour in range(20)]
    late = [("late", EPOCH - 30 * DAY, "a=0"), ("soon", EPOCH + 30 * DAY, "a=1")]
    orders = {
        "forward": [*profiles, *late],
        "backward": [*profiles, *late][::-1],
        "shuffled": Random(7).sample([*profiles, *late], 22),  # noqa: S311 - no secret
    }
    for service, order in orders.items():
        for name, time_nanos, labels in order:
            store(server, profile_of(name, time_nanos=time_nanos), service=service, labels=labels)
        begin, end = written(EPOCH + 3 * DAY // 24), written(EPOCH + 9 * DAY // 24)
        within = {str(hour): 1 for hour in range(3, 9)}
        assert found(server, service=service, from_=begin, to=end) == within
        odd = {name: 1 for name in within if int(name) % 2}
        assert found(server, service=service, from_=begin, to=end, labels="a=1") == odd
        assert found(server, service=service, to=written(EPOCH)) == {"late": 1}
        assert found(server, service=service, labels="a=0", to=begin) == {"late": 1, "0": 1, "2": 1}
        assert len(found(server, service=service)) == 22
    merges = {server.merge(query={"service": service}).headers["ETag"] for service in orders}
    assert len(merges) == 1


def test_the_last_days(own: OwnService) -> None:
    now = datetime.now(UTC).timestamp()
    for age in (1, 5, 9):
        time_nanos = int(now - age * 86400) * SECOND
        store(own, profile_of(f"{age}", time_nanos=time_nanos))
    assert found(own, last="7d") == {"1": 1, "5": 1}
    assert found(own, last="1w", to=written(int(now - 3 * 86400) * SECOND)) == {"5": 1, "9": 1}


def test_the_last_hour_ends_now(own: OwnService) -> None:
    now = time.time_ns()
    for name, ahead in (("now", 0), ("soon", 60)):
        store(own, profile_of(name, time_nanos=now + ahead * SECOND))
    assert found(own, last="1h") == {"now": 1}
    assert found(own, last="1h", to=written(now + 120 * SECOND)) == {"now": 1, "soon": 1}
    assert found(own) == {"now": 1, "soon": 1}


def test_a_combined_profile_is_found_by_every_part_of_its_time(server: Server) -> None:
    for day in range(3):
        store(server, profile_of(f"{day}", time_nanos=EPOCH + day * DAY), labels="a=1")
    store(server, profile_of("other", time_nanos=EPOCH + DAY), labels="a=2")
    server.combine(query={"labels": "a=1"})
    whole = {"0": 1, "1": 1, "2": 1}
    assert len(server.blobs()) == 2
    middle = {"from_": written(EPOCH + DAY // 2), "to": written(EPOCH + DAY // 2 * 3)}
    assert found(server, **middle) == whole | {"other": 1}
    for end, coarse in ((EPOCH + DAY, "1"), (EPOCH + 2 * DAY, "1"), (EPOCH + 3 * DAY, None)):
        assert server.merge(query={"to": written(end)}).headers.get("PGO-Coarse") == coarse
    assert "PGO-Coarse" not in server.merge().headers
    assert found(server, labels="a=1", to=written(EPOCH)) == {}
    assert found(server, labels="a=1", from_=written(EPOCH + 2 * DAY + SECOND)) == {}
    server.kill()
    server.reindex()
    server.start()
    assert found(server, **middle) == whole | {"other": 1}
    assert found(server, labels="a=1", from_=written(EPOCH + 2 * DAY + SECOND)) == {}


def test_a_profile_without_a_time_was_taken_when_it_came_first(own: OwnService) -> None:
    for _ in range(2):
        store(own, profile_of("x", time_nanos=0))
    assert found(own) == found(own, last="1h") == {"x": 1}
    assert len(own.blobs()) == 1


@pytest.mark.parametrize(
    "query",
    [
        {"service": "a/b"}, {"service": ".."}, {"service": "a" * 201}, {"type": "nothing"},
        {"labels": "region"}, {"labels": "=eu"}, {"labels": f"a={'b' * 300}"}, {"labels": "a=1,a=2"},
        {"labels": "a=%FF"}, {"labels": "a=%00"}, {"labels": ",".join(f"k{i}=v" for i in range(17))},
    ],
)  # fmt: skip
def test_what_no_profile_can_be_sent_to_is_refused(shared: Server, query: dict[str, str]) -> None:
    answer = shared.submit(profile_of("a"), query=query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        {"service": "a b"}, {"type": "x"}, {"labels": "region"}, {"labels": "!=eu"},
        {"labels": ",".join(f"k{i}=v" for i in range(33))}, {"from": "yesterday"}, {"to": "2026-13-01"},
        {"last": "7"}, {"last": "0d"}, {"last": "1d", "from": "2026-01-01"},
        {"from": "2026-01-02", "to": "2026-01-01"},
    ],
)  # fmt: skip
def test_what_nothing_can_be_selected_by_is_refused(shared: Server, query: dict[str, str]) -> None:
    answer = shared.merge(query=query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/submit?service=latin&"),
        ("GET", "/v1/merge?service=latin&"),
        ("GET", "/v1/diff?service=latin&base_"),
        ("POST", "/api/0/profiles?service=latin&type=cpu&"),
        ("GET", "/api/0/profiles?service=latin&"),
    ],
)
def test_labels_that_are_not_utf_8_are_refused(shared: Server, method: str, path: str) -> None:
    key = shared.submit_key if method == "POST" else shared.merge_key
    url = f"{path}labels=name=caf%E9"
    answer = shared.client.request(
        method, url, content=profile_of("a"), headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 400
    assert "labels: not UTF-8" in answer.text


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20", "2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00"])
def test_times_are_in_utc_unless_they_say_otherwise(shared: Server, text: str) -> None:
    service = f"at-{text[19:20] or 'n'}".replace("+", "plus")
    store(shared, profile_of("x"), service=service)
    assert found(shared, service=service, from_=text) == {"x": 1}
    assert found(shared, service=service, to=text) == {}


def test_times_are_exact_to_the_nanosecond(shared: Server) -> None:
    store(shared, profile_of("x", time_nanos=EPOCH + 123_456_780), service="nanos")
    for fraction, is_from_then_on in (("12345678", True), ("123456780", True), ("123456781", False)):
        text = f"2023-11-14T22:13:20.{fraction}Z"
        assert found(shared, service="nanos", from_=text) == ({"x": 1} if is_from_then_on else {})
        assert found(shared, service="nanos", to=text) == ({} if is_from_then_on else {"x": 1})


def test_releases_and_reports_are_of_a_service(server: Server) -> None:
    store(server, profile_of("a"), service="one")
    store(server, profile_of("b"), service="two", labels="version=2")
    one, two = (
        server.client.get(
            "/v1/release", params={"service": name}, headers={"Authorization": f"Bearer {server.merge_key}"}
        )
        for name in ("one", "two")
    )
    assert (tally(one.content), tally(two.content)) == ({"a": 1}, {"b": 1})
    for path in ("/v1/release", "/v1/report"):
        missing = server.client.get(path, headers={"Authorization": f"Bearer {server.merge_key}"})
        assert missing.status_code == 404
    report = server.client.get(
        "/v1/report",
        params={"service": "two", "labels": "version=2"},
        headers={"Authorization": f"Bearer {server.merge_key}"},
    )
    assert report.json()["profiles"] == 1
