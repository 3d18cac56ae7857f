"""The overview of the fleet: /v1/fleet and the first page, from the same query."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.collector.hostile_names import HOSTILE, submit_hostile
from tests.collector.ui.test_pages import assert_ours
from tests.collector.visitor import Page, Visitor
from tests.collector.workers.test_workers import workers_of
from tests.merge.stacked import stacked
from tests.server import Server

DAY = 86400 * 10**9
HOUR = DAY // 24
MS10 = 10**7


def store(server: Server, service: str, stacks: dict[str, int], age_nanos: int) -> None:
    profile = stacked(stacks, time_nanos=time.time_ns() - age_nanos)
    assert server.submit(profile, query={"service": service}).status_code == 204


def overview(server: Server, key: str = Server.merge_key, **query: str) -> dict[str, Any]:
    answer = server.ask("/v1/fleet", key=key, **query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store two weeks of a service that changes, a week of one that stops, and one profile of a third."""
    with Server(tmp_path_factory.mktemp("fleet")) as server:
        for days in range(1, 14):
            work = 60 if days < 6 else 20
            stacks = {"main.main;shop.work": work, "main.main;runtime.gc": 100 - work}
            store(server, "shop", stacks, days * DAY)
        for hours in range(100, 130):
            store(server, "mail", {"main.main;runtime.gc": 30}, hours * HOUR)
        store(server, "etl", {"main.main;etl.run": 50}, HOUR)
        yield server


def test_the_fleet_adds_up_all_services(fleet: Server) -> None:
    found = overview(fleet)
    assert found["sample_type"] == {"type": "cpu", "unit": "nanoseconds"}
    assert len(found["days"]) == 14
    services = {each["service"]: each for each in found["services"]}
    assert {name: sum(each["days"]) // MS10 for name, each in services.items()} == {
        "shop": 1300,
        "mail": 900,
        "etl": 50,
    }
    assert all(each["total"] + each["base_total"] == sum(each["days"]) for each in services.values())
    top = {row["name"]: row for row in found["functions"]}
    assert {*top} == {"shop.work", "runtime.gc", "etl.run"}
    assert {each["service"] for each in top["runtime.gc"]["services"]} == {"shop", "mail"}
    assert sum(row["flat"] for row in top.values()) == sum(each["total"] for each in services.values())
    assert {row["name"] for row in found["packages"]} == {"shop", "runtime", "etl"}


def test_it_says_what_changed_and_what_stopped(fleet: Server) -> None:
    services = {each["service"]: each for each in overview(fleet)["services"]}
    assert {name for name, each in services.items() if each["stopped"]} == {"mail"}
    change = services["shop"]["change"]
    assert change["name"] in {"shop.work", "runtime.gc"}
    assert abs(change["difference"]) > 0.3
    assert not change["interval"]["noise"]
    assert services["mail"]["change"] is None


def test_it_says_which_release_is_due(tmp_path: Path) -> None:
    with Server(tmp_path, {"PGOF_RELEASE_DAYS": "0.00001"}) as server:
        store(server, "default", {"main.main;work": 10}, HOUR)
        server.release().raise_for_status()
        assert overview(server)["services"][0]["release_due"] is None
        later = stacked({"main.main;work": 11}, time_nanos=time.time_ns() + 2 * 10**9)
        assert server.submit(later, query={"service": "default"}).status_code == 204
        deadline = time.monotonic() + 60
        while not (due := overview(server)["services"][0]["release_due"]) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert due["number"] == 1
        assert "release 1 is of" in Visitor(server).page("/ui/").text


def test_a_search_finds_services_functions_and_packages(fleet: Server) -> None:
    found = overview(fleet, search="SHOP")
    assert [each["service"] for each in found["services"]] == ["shop"]
    assert [row["name"] for row in found["functions"]] == ["shop.work"]
    page = Visitor(fleet).page("/ui/", search="gc")
    assert "runtime.gc" in page.text
    assert "name contains this" in page.text
    assert fleet.ask("/v1/fleet", search="x" * 201).status_code == 400


def test_a_kept_survey_is_made_anew_for_a_new_profile(server: Server) -> None:
    for service in ("etl", "mail"):
        store(server, service, {"main.main;etl.run": 50}, HOUR)
    first = overview(server)
    assert overview(server) == first
    store(server, "etl", {"main.main;etl.run": 7}, HOUR // 2)
    etl = next(each for each in overview(server)["services"] if each["service"] == "etl")
    assert sum(etl["days"]) == 57 * MS10


def test_an_empty_fleet_has_nothing(server: Server) -> None:
    found = overview(server)
    assert (found["sample_type"], found["services"], found["functions"]) == (None, [], [])
    assert "No profiles are stored yet" in Visitor(server).page("/ui/").text


def test_a_service_with_many_profiles_is_thinned(server: Server) -> None:
    """Stores 502 profiles, since 500 of a service are read."""
    now = time.time_ns()
    for number in range(502):
        profile = stacked({"main.main;work": 10}, time_nanos=now - HOUR - number * 10**9)
        assert server.submit(profile).status_code == 204
    (service,) = overview(server)["services"]
    assert (service["profiles"], service["every"]) == (502, 2)
    assert sum(service["days"]) == 502 * 10 * MS10


def test_a_service_that_is_too_large_does_not_hide_the_others(stopped: Server) -> None:
    stopped.environment["PGOF_MAX_OUTPUT_BYTES"] = "20000"
    stopped.start()
    store(stopped, "shop", {"main.main;shop.work": 10}, HOUR)
    for hours in (1, 2):
        store(stopped, "large", {f"main.main;f{number}": 1 for number in range(1000)}, hours * HOUR)
    for _ in range(2):  # the second one is kept
        found = overview(stopped)
        assert (found["too_large"], found["left_out"]) == (["large"], 2)
        assert [each["service"] for each in found["services"]] == ["shop"]
    page = Visitor(stopped).page("/ui/")
    assert "The overview is without large" in page.text
    assert "shop.work" in page.text


SCOPES = {"sh*": {"shop", "shed"}, "shop": {"shop"}, "shop,pays": {"shop", "pays"}, "none": set[str]()}


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Store profiles of three services, for which keys have scopes; `key-of-all` is for all of them."""
    server = Server(tmp_path_factory.mktemp("scoped"))
    keys = [f"key-of-{scope} service={scope}\n" for scope in SCOPES]
    server.merge_keys.write_text("".join([*keys, "key-of-all\n"]))
    with server:
        for service in ("shop", "shed", "pays"):
            store(server, service, {f"main.main;{service}.work": 10}, HOUR)
        yield server


@pytest.mark.parametrize(("scope", "seen"), SCOPES.items())
def test_a_key_sees_the_fleet_of_its_services_only(scoped: Server, scope: str, seen: set[str]) -> None:
    services, key = {"shop", "shed", "pays"}, f"key-of-{scope}"
    assert len(overview(scoped, "key-of-all")["services"]) == 3
    for service in services:
        answer = scoped.ask("/v1/fleet", key=key, service=service)
        assert answer.status_code == (200 if service in seen else 403)
        assert not any(other in answer.text for other in services - {service})
    # Without a service, it is the only one of the key, else all: those aren't this key's.
    if "*" in scope or "," in scope:
        assert scoped.ask("/v1/fleet", key=key).status_code == 403
    else:
        assert {each["service"] for each in overview(scoped, key)["services"]} == seen
    visitor = Visitor(scoped, key)
    for query in ({}, {"search": "work"}, {"service": "pays"}):
        text = visitor.page("/ui/", 200, **query).text
        assert {service for service in services if service in text} == seen


def test_no_name_does_harm_to_the_fleet(server: Server) -> None:
    submit_hostile(server)
    visitor = Visitor(server)
    for query in ({}, *({"search": name[:200]} for name in HOSTILE)):
        answer = visitor.get("/ui/", None, **query)
        assert answer.status_code == 200
        assert len(answer.content) < 100_000
        assert b"<script>alert" not in answer.content
        assert_ours(Page(answer))
    assert len(json.dumps(overview(server))) < 1_000_000
    assert not server.events("unexpected error")


def test_without_a_worker_the_answer_is_503_and_the_page_lists_the_services(server: Server) -> None:
    """Ends the workers again and again, so that each that gets the task dies with it."""
    ended = threading.Event()
    pages: list[Page] = []
    answers: list[httpx.Response] = []

    def end_workers() -> None:
        while not ended.is_set():
            for pid in workers_of(server):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    visitor, deadline = Visitor(server), time.monotonic() + 120
    while not (pages and answers) and time.monotonic() < deadline:
        ended.clear()
        store(server, "shop", {"main.main;shop.work": 10}, HOUR)  # new, so that no kept survey will do
        ending = threading.Thread(target=end_workers)
        ending.start()
        answer, page = server.ask("/v1/fleet"), visitor.page("/ui/")
        ended.set()
        ending.join()
        assert answer.status_code in {200, 503}
        answers += [answer] if answer.status_code == 503 else []
        pages += [page] if "worker" in page.text else []
    assert answers[0].headers["Retry-After"] == "5"
    assert answers[0].headers["Content-Type"] == "application/problem+json"
    assert "worker" in answers[0].json()["detail"]
    assert [link for link in pages[0].links() if link == "/ui/services/shop"]
    assert [each["service"] for each in overview(server)["services"]] == ["shop"]
