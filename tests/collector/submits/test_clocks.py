"""Clocks of senders that are off: profiles from after now, and those older than retention keeps."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pgo_collector.catalog.summaries import Summaries
from pgo_collector.model.selection import Selection
from pprof_merge import inflate

from tests.collector import datadog, exporting, profefe, pushing
from tests.collector.catalog.test_fingerprint_cache import another
from tests.collector.routes import test_parca as parca
from tests.constants import SECONDS_AHEAD
from tests.faults.stacks import DAY, SECOND, profile_of, tally
from tests.server import Server

pytestmark = pytest.mark.any_store

YEAR = 365 * DAY
INSTANCE = {"labels": "instance=a"}


def ahead_by(nanos: int, stack: str = "ahead") -> bytes:
    return profile_of(stack, time_nanos=time.time_ns() + nanos)


def listed(server: Server, service: str = "default") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.ask("/v1/profiles", service=service).json()["profiles"]
    return found


def is_from_now(entry: dict[str, Any]) -> bool:
    age = datetime.now(UTC) - datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", entry["time"]))
    return 0 <= age.total_seconds() < 60


def test_a_profile_from_too_far_after_now_is_stored_as_it_came_with_the_time_of_arrival(
    server: Server,
) -> None:
    profile = ahead_by(YEAR)
    answer = server.submit(profile, query=INSTANCE)
    assert answer.status_code == 204
    seconds, became = answer.headers["PGO-Clock"].split(";")
    assert int(seconds) == pytest.approx(YEAR // SECOND, abs=60)
    assert became == "stored-at-arrival"
    (entry,) = listed(server)
    assert is_from_now(entry)
    (blob,) = server.blobs()
    assert inflate(blob.read_bytes()) == inflate(profile)
    (event,) = server.events("clock off")
    assert (event["service"], event["instance"]) == ("default", "a")
    report = server.ask("/v1/report").json()
    (clock,) = report["clocks"]
    assert (clock["instance"], clock["profiles"]) == ("a", 1)
    assert clock["ahead_seconds"] == pytest.approx(YEAR // SECOND, abs=60)
    assert 0 <= report["times"]["newest"]["age_seconds"] < 60


def test_it_is_one_profile_however_often_it_is_sent_and_after_a_rebuild(server: Server) -> None:
    profile = ahead_by(YEAR)
    for _ in range(2):
        server.submit(profile)
    before, merge = listed(server), server.merge()
    assert len(before) == 1
    server.restart()
    server.submit(profile)
    assert listed(server) == before
    server.stop()
    server.reindex()
    server.start()
    assert not server.events("stored profile damaged")
    server.submit(profile)
    assert listed(server) == before
    assert server.merge().content == merge.content
    assert tally(merge.content) == {"ahead": 1}


def test_it_is_the_same_when_its_time_has_come(stopped: Server) -> None:
    stopped.environment[SECONDS_AHEAD] = "1"
    stopped.start()
    profile = ahead_by(4 * SECOND)
    assert "PGO-Clock" in stopped.submit(profile).headers
    before = listed(stopped)
    time.sleep(4)
    assert stopped.submit(profile).status_code == 204
    assert listed(stopped) == before
    assert tally(stopped.merge().content) == {"ahead": 1}


def test_combined_they_keep_their_times_and_stay_one_each(server: Server) -> None:
    profiles = [ahead_by(YEAR + number * DAY, f"{number}") for number in range(3)]
    for profile in profiles:
        server.submit(profile)
    merge = server.combine()
    server.stop()
    server.reindex()
    server.start()
    assert not server.events("stored profile damaged")
    for profile in profiles:
        server.submit(profile)
    (entry,) = listed(server)
    assert is_from_now(entry)
    assert server.merge().content == merge.content
    assert server.merge(query={"last": "1h"}).content == merge.content


def test_a_clock_that_is_a_little_ahead_is_right(server: Server) -> None:
    profile = ahead_by(60 * SECOND)
    assert "PGO-Clock" not in server.submit(profile).headers
    (entry,) = listed(server)
    assert not is_from_now(entry)
    assert not server.events("clock off")


def test_one_stored_before_there_was_a_bound_decides_nothing(stopped: Server) -> None:
    stopped.environment[SECONDS_AHEAD] = "inf"
    stopped.start()
    profile = ahead_by(YEAR)
    for each in (profile, ahead_by(-7 * DAY, "old"), ahead_by(-SECOND, "new")):
        stopped.submit(each)
    stopped.stop()
    del stopped.environment[SECONDS_AHEAD]
    stopped.start()
    assert tally(stopped.merge(query={"last": "1h"}).content) == {"new": 1}
    stopped.submit(profile)
    assert len(listed(stopped)) == 3
    weighed = stopped.merge("GET", format_="folded", query={"half_life": "7d"}).text
    counts = {name: int(count) for name, count in re.findall(r"(\w+) (\d+)$", weighed, re.MULTILINE)}
    assert counts["ahead"] == counts["new"]
    assert counts["old"] == pytest.approx(counts["new"] / 2, rel=0.01)


def test_its_age_counts_from_its_arrival(server: Server) -> None:
    server.submit(ahead_by(YEAR))
    time.sleep(2)
    server.submit(ahead_by(0, "right"))
    weighed = server.merge("GET", format_="folded", query={"half_life": "1s"}).text
    counts = {name: int(count) for name, count in re.findall(r"(\w+) (\d+)$", weighed, re.MULTILINE)}
    assert counts["ahead"] < counts["right"] / 2


def test_one_stored_before_there_was_a_bound_is_not_the_newest(stopped: Server) -> None:
    stopped.environment[SECONDS_AHEAD] = "inf"
    stopped.start()
    for version, ahead in (("1", -DAY), ("2", -SECOND), ("3", YEAR)):
        stopped.submit(
            ahead_by(ahead, f"v{version}"), query={"service": "demo", "labels": f"version={version}"}
        )
    assert profefe.merged(stopped, limit="1") == {"v2": 1}
    assert len(profefe.listed(stopped, type="cpu", limit="1")) == 1
    assert len(profefe.listed(stopped, type="cpu", limit="3")) == 2
    assert len(profefe.listed(stopped, type="cpu")) == 3
    stopped.stop()
    with another(stopped.data) as catalog:
        found = Summaries(catalog).summary(Selection("demo", "cpu"))
    assert found is not None
    assert found.newest_version == "2"


def _to_profefe(server: Server, profile: bytes) -> None:
    answer = profefe.post(server, profile, service="s")
    assert answer.status_code == 200
    assert answer.headers["PGO-Clock"].endswith(";stored-at-arrival")


def _created_at(server: Server, _: bytes) -> None:
    created = datetime.fromtimestamp(time.time() + YEAR // SECOND, UTC).isoformat()
    answer = profefe.post(server, profile_of("ahead", time_nanos=0), service="s", created_at=created)
    assert answer.status_code == 200


def _to_ingest(server: Server, profile: bytes) -> None:
    assert pushing.ingest(server, profile, name="s", format="pprof").status_code == 200


def _from(server: Server, _: bytes) -> None:
    ahead = {
        "from": str(int(time.time()) + YEAR // SECOND),
        "until": str(int(time.time()) + 2 * YEAR // SECOND),
    }
    profile = profile_of("ahead", time_nanos=0)
    assert pushing.ingest(server, profile, name="s", format="pprof", **ahead).status_code == 200


def _to_push(server: Server, profile: bytes) -> None:
    pushing.assert_pushed(pushing.push(server, pushing.one(profile, "s")))


def _to_datadog(server: Server, profile: bytes) -> None:
    parts = {"event": datadog.event("s"), "profile.pprof": profile}
    datadog.assert_uploaded(datadog.upload(server, parts))


def _to_parca(server: Server, profile: bytes) -> None:
    parca.assert_written(parca.write(server, parca.one(profile, job="s")))


def _to_otlp(server: Server, _: bytes) -> None:
    made = exporting.Export()
    made.resource({"service.name": "s"})
    made.profile()
    for resource in made.request.resource_profiles:
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                profile.time_unix_nano = time.time_ns() + YEAR
    made.sample([("ahead", "/src/main.c", 7)], timestamps=1)
    exporting.assert_exported(exporting.export(server, made.body))


@pytest.mark.parametrize(
    "send",
    [_to_profefe, _created_at, _to_ingest, _from, _to_push, _to_datadog, _to_parca, _to_otlp],
    ids=lambda send: send.__name__,
)
def test_every_way_in_has_the_bound(server: Server, send: Callable[[Server, bytes], None]) -> None:
    send(server, ahead_by(YEAR))
    (blob,) = server.blobs()
    assert 0 <= time.time_ns() - int(blob.name.partition("-")[0]) < 60 * SECOND
    (event,) = server.events("clock off")
    assert event["service"] == "s"


def test_one_from_1970_is_found_whole_by_a_rebuild(server: Server) -> None:
    profile = profile_of("unset", time_nanos=5)
    pushing.assert_pushed(pushing.push(server, pushing.one(profile, "s")))
    server.stop()
    server.reindex()
    server.start()
    assert not server.events("stored profile damaged")
    (blob,) = server.blobs()
    assert inflate(blob.read_bytes()) == inflate(profile)


def clocks_off(server: Server) -> dict[str, float]:
    text = server.client.get("/metrics").text
    found = re.findall(r"^pgo_collector_clock_off_seconds\{(.*)\} (\S+)$", text, re.MULTILINE)
    return {labels: float(seconds) for labels, seconds in found}


def test_a_metric_names_the_instances_whose_clocks_are_off(stopped: Server) -> None:
    stopped.environment |= {"PGOF_METRICS_OPEN": "true", "PGOF_KEEP_DAYS": "30"}
    stopped.start()
    stopped.submit(ahead_by(YEAR), query=INSTANCE)
    old = stopped.submit(ahead_by(-40 * DAY, "old"), query={"service": "other"})
    assert old.headers["PGO-Clock"] == f"{-40 * DAY // SECOND};older-than-kept"
    found = clocks_off(stopped)
    assert found.keys() == {'profiled_instance="a",service="default"', 'profiled_instance="",service="other"'}
    assert found['profiled_instance="a",service="default"'] == pytest.approx(YEAR / SECOND, abs=60)
    assert found['profiled_instance="",service="other"'] == pytest.approx(-40 * DAY / SECOND, abs=60)
    stopped.submit(ahead_by(-SECOND, "right"), query=INSTANCE)
    assert clocks_off(stopped).keys() == {'profiled_instance="",service="other"'}
    for number in range(30):
        stopped.submit(ahead_by(YEAR, f"{number}"), query={"labels": f"instance={number}"})
    assert {*clocks_off(stopped)} == {
        f'profiled_instance="{number}",service="default"' for number in range(10, 30)
    }
