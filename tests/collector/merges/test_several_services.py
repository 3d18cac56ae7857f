"""Merges, reports and releases of several services at once, each with a weight of its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pprof_merge import inflate

from tests.collector.merges.test_weights import cpu_of
from tests.constants import RELEASE_SETS
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of
from tests.merge.differential import check_as_go
from tests.merge.stacked import stacked
from tests.oracle.oracle import running
from tests.server import Server, bearer

SHOP, BANK = ("service", "shop"), ("service", "bank")
BOTH = (SHOP, BANK)
KEYS = {"key-of-all": "*", "key-of-shop": "shop", "key-of-s": "s*", "key-of-both": "shop,bank"}


@pytest.fixture
def mall(stopped: Server) -> Server:
    """Start a collector for which there are keys of some services, with an empty folder of rules."""
    (stopped.home / "rules").mkdir()
    stopped.environment["PGOF_RULES_DIR"] = str(stopped.home / "rules")
    with (stopped.home / "merge_keys").open("a") as file:
        file.writelines(f"{key} service={scope}\n" for key, scope in KEYS.items())
    stopped.start()
    return stopped


def ask(
    server: Server,
    path: str,
    *query: tuple[str, str],
    key: str = "key-of-both",
    method: str = "GET",
    **headers: str,
) -> httpx.Response:
    return server.client.request(method, path, params=[*query], headers=bearer(key) | headers)


def merge(server: Server, *query: tuple[str, str]) -> bytes:
    answer = ask(server, "/v1/merge", *query)
    assert answer.status_code == 200, answer.text
    return answer.content


def store(server: Server, service: str, *profiles: bytes) -> None:
    for profile in profiles:
        assert server.submit(profile, query={"service": service}).status_code == 204


def detail(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    text: str = answer.json()["detail"]
    return text


def test_the_merge_is_that_of_all_their_files_as_by_go(
    mall: Server, go_profiles: list[bytes], tmp_path: Path
) -> None:
    here, there = go_profiles[::2], go_profiles[1::2]
    common = go_profiles[0]  # each of the services has sent it, so it counts twice
    store(mall, "shop", *here)
    store(mall, "bank", *there, common)
    store(mall, "other", profile_of("not.asked"))
    with running(tmp_path) as oracle:
        expected = check_as_go([*here, *there, common], oracle)
    assert inflate(merge(mall, *BOTH)) == expected
    assert inflate(merge(mall, BANK, SHOP, SHOP)) == expected


def test_a_merge_is_kept_until_a_profile_of_one_comes(mall: Server) -> None:
    store(mall, "shop", profile_of("a"))
    store(mall, "bank", profile_of("b"))
    first = ask(mall, "/v1/merge", *BOTH)
    etag = first.headers["ETag"]
    assert ask(mall, "/v1/merge", *BOTH, **{"If-None-Match": etag}).status_code == 304
    assert len(mall.events("merge made")) == 1
    assert first.headers["Content-Disposition"] == 'attachment; filename="bank+shop.pb.gz"'
    for service in ("shop", "bank"):
        store(mall, service, profile_of(f"new.{service}"))
        changed = ask(mall, "/v1/merge", *BOTH).headers["ETag"]
        assert changed != etag
        etag = changed


# 90 % of all samples are of shop, in two profiles, and 10 % of bank.
MANY = {
    "shop": [
        stacked({"shop.old": 600}, time_nanos=EPOCH),
        stacked({"shop.new": 300}, time_nanos=EPOCH + 7 * DAY),
    ],
    "bank": [stacked({"bank.f": 100}, time_nanos=EPOCH + 7 * DAY)],
}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("many"))
    with (server.home / "merge_keys").open("a") as file:
        file.writelines(f"{key} service={scope}\n" for key, scope in KEYS.items())
    with server:
        for service, profiles in MANY.items():
            store(server, service, *profiles)
        yield server


@pytest.mark.parametrize(
    ("query", "shares"),
    [
        ((), {"shop.old": 0.6, "shop.new": 0.3, "bank.f": 0.1}),
        ((("weights", "shop:1,bank:1"),), {"shop.old": 1 / 3, "shop.new": 1 / 6, "bank.f": 1 / 2}),
        ((("weights", "bank:3,shop:1.000"),), {"shop.old": 1 / 6, "shop.new": 1 / 12, "bank.f": 3 / 4}),
        (
            (("weights", "shop:0.5,bank:0.25"), ("half_life", "7d")),
            {"shop.old": 1 / 3, "shop.new": 1 / 3, "bank.f": 1 / 3},
        ),
        (
            (("weights", "shop:2,bank:1"), ("weight", "duration")),
            {"shop.old": 1 / 3, "shop.new": 1 / 3, "bank.f": 1 / 3},
        ),
    ],
)
def test_each_service_counts_as_its_weight_says(
    many: Server, query: tuple[tuple[str, str], ...], shares: dict[str, float]
) -> None:
    found = cpu_of(merge(many, *BOTH, *query))
    assert {name: value / sum(found.values()) for name, value in found.items()} == pytest.approx(shares)


def test_weights_of_the_same_ratio_are_the_same_merge(many: Server) -> None:
    etags = {
        ask(many, "/v1/merge", *order, ("weights", text)).headers["ETag"]
        for order in (BOTH, BOTH[::-1])
        for text in ("shop:2,bank:1", "bank:0.5,shop:1")
    }
    assert len(etags) == 1


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ("shop:2", "there is none for 'bank'"),
        ("shop:2,bank:1,bnak:3", "'bnak' is none of the services"),
        ("shop:2,bank:0", "a number above 0"),
        ("shop:2,bank:1,bank:1", "given twice"),
        ("shop:2,bank:1e9", "a number above 0"),
        ("shop", "a number above 0"),
    ],
)
def test_weights_that_do_not_fit_are_refused(many: Server, weights: str, reason: str) -> None:
    for path in ("/v1/merge", "/v1/release"):
        assert reason in detail(ask(many, path, *BOTH, ("weights", weights)), 400)


@pytest.mark.parametrize("path", ["/v1/merge", "/v1/report", "/v1/release", "/v1/releases"])
def test_a_key_of_one_service_reads_no_other(many: Server, path: str) -> None:
    for key, query in (
        ("key-of-shop", BOTH),
        ("key-of-s", BOTH),
        ("key-of-s", (("service", "shop+bank"),)),
        ("key-of-s", (("service", "s+bank"), SHOP)),
    ):
        assert "isn't for service 'bank'" in detail(ask(many, path, *query, key=key), 403)
    assert ask(many, path, SHOP, ("service", "sho"), key="key-of-shop").status_code == 403


@pytest.mark.parametrize("path", ["/v1/merge", "/v1/report", "/v1/release"])
def test_a_service_that_is_not_there_is_named_with_the_nearest(many: Server, path: str) -> None:
    answer = ask(many, path, SHOP, ("service", "bnak"), key="key-of-all")
    assert "no service is named 'bnak': did you mean 'bank'?" in detail(answer, 404)
    answer = ask(many, path, *BOTH, ("service", "quite-another"), key="key-of-all")
    assert "the service 'quite-another' has none" in detail(answer, 404)


def test_one_without_profiles_in_the_selection_adds_nothing(mall: Server) -> None:
    store(mall, "shop", profile_of("a", time_nanos=EPOCH))
    store(mall, "bank", profile_of("b", time_nanos=EPOCH + DAY))
    begin = datetime.fromtimestamp((EPOCH + SECOND) // SECOND, UTC).isoformat()
    found = cpu_of(merge(mall, *BOTH, ("from", begin), ("weights", "shop:2,bank:1")))
    assert found.keys() == {"b"}


def test_too_many_services_and_what_takes_one_are_refused(many: Server) -> None:
    every = [("service", f"s{number}") for number in range(33)]
    assert "no more than 32" in detail(ask(many, "/v1/merge", *every, key="key-of-all"), 400)
    answer = ask(many, "/v1/merge", *BOTH, ("and_combine", "true"), method="POST")
    assert "give one service" in detail(answer, 400)
    assert "give it once" in detail(ask(many, "/v1/top", *BOTH), 400)
    assert "a name has up to" in detail(ask(many, "/v1/top", ("service", "bank+shop")), 400)
    assert "a name has up to" in detail(
        ask(many, "/v1/merge", SHOP, ("service", "b k"), key="key-of-all"), 400
    )


def test_every_format_and_the_rules_of_each(mall: Server) -> None:
    rules = mall.home / "rules"
    (rules / "shop.rules").write_text("drop shop.waste\n")
    (rules / "bank.rules").write_text("drop bank.waste\n")
    store(mall, "shop", stacked({"main;shop.f;shop.waste": 1, "main;shop.f": 1}))
    store(mall, "bank", stacked({"main;bank.f;bank.waste": 1, "main;bank.f": 1}))
    for name in ("folded", "json", "llvm", "go", "speedscope"):
        content = merge(mall, *BOTH, ("format", name))
        text = inflate(content) if name == "go" else content
        assert (b"shop.f" in text, b"bank.f" in text, b"waste" in text) == (True, True, False), name


def test_the_report_is_on_all(many: Server) -> None:
    report = ask(many, "/v1/report", *BOTH).json()
    assert (report["profiles"], report["totals"]["samples/count"]) == (3, 1000)


def test_the_report_compares_what_is_built_with(mall: Server) -> None:
    for service, count in (("shop", 900), ("bank", 100)):
        store(mall, service, stacked({f"main;{service}.f;{service}.g": count}))
    weighed = (*BOTH, ("weights", "shop:1,bank:3"))
    plain, other = (ask(mall, "/v1/report", *query).json()["against"] for query in (BOTH, weighed))
    assert (plain, other) == (None, None)
    for query in (BOTH, weighed):
        assert ask(mall, "/v1/release", *query).status_code == 200
    against = [ask(mall, "/v1/report", *query).json()["against"]["overlap"] for query in (BOTH, weighed)]
    assert against == pytest.approx([1, 1], abs=1e-3)
    symbols = b"main\nbank.f\nbank.g\n"
    for query, share in ((BOTH, 0.1), (weighed, 0.75)):
        headers = bearer("key-of-both")
        answer = mall.client.post("/v1/report", params=[*query], headers=headers, content=symbols)
        covered = answer.json()["coverage"]
        for kind in ("functions", "edges"):
            assert covered[kind]["present"] == pytest.approx(share, abs=1e-3)
    assert "give one for each" in detail(ask(mall, "/v1/report", *BOTH, ("weights", "shop:1")), 400)


def releases(server: Server, *query: tuple[str, str], method: str = "GET", path: str = "") -> Any:
    return ask(server, f"/v1/releases{path}", *query, method=method).json()


def test_releases_are_of_the_services_and_their_weights(mall: Server) -> None:
    for service, profiles in MANY.items():
        store(mall, service, *profiles)
    weighed = (*BOTH, ("weights", "shop:1,bank:2"))
    plain, other = ask(mall, "/v1/release", *BOTH), ask(mall, "/v1/release", *weighed)
    for answer, query in ((plain, BOTH), (other, weighed)):
        assert answer.content == merge(mall, *query)
        assert answer.headers["ETag"] == ask(mall, "/v1/merge", *query).headers["ETag"]
    assert cpu_of(plain.content) != cpu_of(other.content)
    same = ask(mall, "/v1/release", ("weights", "bank:1,shop:0.5"), *BOTH[::-1])
    assert same.headers["ETag"] == other.headers["ETag"]
    assert [len(releases(mall, *query)["releases"]) for query in (BOTH, weighed, (SHOP,))] == [1, 1, 0]
    assert releases(mall, *weighed, path="/1")["report"]["profiles"] == 3
    assert ask(mall, "/v1/release", *weighed, ("format", "llvm")).status_code == 200
    store(mall, "bank", profile_of("bank.g"))
    made = releases(mall, *weighed, method="POST")
    assert (made["number"], made["current"]) == (2, True)
    assert releases(mall, *weighed, method="PUT", path="/1/pin")["pinned"]
    assert ask(mall, "/v1/release", *weighed).headers["PGO-Release"] == "1"
    mall.restart()
    assert ask(mall, "/v1/release", *weighed).headers["PGO-Release"] == "1"
    assert ask(mall, "/v1/releases/2/profile", *weighed).status_code == 200


def test_the_sets_of_services_with_releases_are_bounded(mall: Server) -> None:
    mall.stop()
    mall.environment[RELEASE_SETS] = "1"
    mall.start()
    store(mall, "shop", profile_of("a"))
    store(mall, "bank", profile_of("b"))
    assert ask(mall, "/v1/release", *BOTH).status_code == 200
    weighed = (*BOTH, ("weights", "shop:1,bank:2"))
    for method, path in (("GET", "/v1/release"), ("POST", "/v1/releases")):
        assert "1 sets of services, the limit" in detail(ask(mall, path, *weighed, method=method), 400)
    assert ask(mall, "/v1/release", *BOTH).status_code == 200
    assert ask(mall, "/v1/release", SHOP).status_code == 200
