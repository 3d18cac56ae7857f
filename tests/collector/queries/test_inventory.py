"""The inventory: services, and profiles page by page."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from tests.collector.own_service import OwnService
from tests.faults.stacks import DAY, EPOCH, SECOND, profile_of

SURROGATE = base64.b64encode(rb'["\ud800"]').decode()

if TYPE_CHECKING:
    from tests.server import Server


def store(server: Server, profile: bytes, **query: str) -> None:
    assert server.submit(profile, query=query).status_code == 204


def listed(server: Server, **query: str) -> list[dict[str, Any]]:
    """Return the profiles of all pages."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.ask("/v1/profiles", **query, cursor=cursor)
        assert page.status_code == 200, page.text
        assert len(page.json()["profiles"]) <= int(query.get("limit", "100"))
        found += page.json()["profiles"]
        cursor = page.json()["next"]
    return found


@pytest.mark.folder
def test_services(server: Server) -> None:
    assert server.ask("/v1/services").json() == {"services": [], "next": None}
    for region in ("eu", "us"):
        for day in range(3):
            profile = profile_of(f"{day}", time_nanos=EPOCH + day * DAY)
            store(server, profile, service="shop", labels=f"region={region},version={day}")
    store(server, profile_of("x"), service="cart")
    store(server, profile_of("y", type_="wall"), service="cart", type="offcpu")
    cart, shop = server.ask("/v1/services").json()["services"]
    sizes = dict.fromkeys(("shop", "cart/cpu", "cart/offcpu"), 0)
    for blob in server.blobs():
        place = blob.relative_to(server.data / "blobs").as_posix()
        sizes[next(name for name in sizes if place.startswith(name))] += blob.stat().st_size
    assert shop == {
        "service": "shop",
        "types": [
            {
                "type": "cpu",
                "profiles": 6,
                "combined": 0,
                "oldest": "2023-11-14T22:13:20Z",
                "newest": "2023-11-16T22:13:20Z",
                "bytes": sizes["shop"],
            }
        ],
        "labels": {"region": 2, "version": 3},
    }
    assert (cart["service"], cart["labels"]) == ("cart", {})
    assert [(each["type"], each["profiles"], each["bytes"]) for each in cart["types"]] == [
        ("cpu", 1, sizes["cart/cpu"]),
        ("offcpu", 1, sizes["cart/offcpu"]),
    ]


@pytest.mark.folder
def test_combined_profiles_are_said_to_be_so(server: Server) -> None:
    for day in range(3):
        store(server, profile_of(f"{day}", time_nanos=EPOCH + day * DAY + 7), labels="version=1")
    server.combine()
    store(server, profile_of("new", time_nanos=EPOCH + 3 * DAY))
    ((types,),) = [service["types"] for service in server.ask("/v1/services").json()["services"]]
    assert (types["profiles"], types["combined"], types["newest"]) == (2, 1, "2023-11-17T22:13:20Z")
    assert types["bytes"] == sum(file.stat().st_size for file in server.blobs("") if file.is_file())
    new, combined = listed(server)
    assert (new["combined"], new["end_time"], new["labels"]) == (False, None, {})
    assert combined["id"] in {blob.relative_to(server.data / "blobs").as_posix() for blob in server.blobs()}
    assert combined | {"id": "", "profile_id": "", "bytes": 0} == {
        "id": "",
        "profile_id": "",
        "service": "default",
        "time": "2023-11-14T22:13:20.000000007Z",
        "end_time": "2023-11-16T22:13:20.000000007Z",
        "duration_seconds": 3.0,
        "labels": {"version": "1"},
        "dropped_labels": [],
        "bytes": 0,
        "samples": 3,
        "combined": True,
    }


def test_pages_of_services(server: Server) -> None:
    for name in "badce":
        store(server, profile_of("x"), service=name)
    names: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = server.ask("/v1/services", limit="2", cursor=cursor).json()
        names += [service["service"] for service in page["services"]]
        cursor = page["next"]
    assert names == [*"abcde"]


def test_label_keys_are_bounded(server: Server) -> None:
    for number in range(9):
        labels = ",".join(f"k{number * 16 + key:03}=v" for key in range(16))
        store(server, profile_of("x"), labels=labels)
    (service,) = server.ask("/v1/services").json()["services"]
    assert list(service["labels"]) == [f"k{key:03}" for key in range(100)]


@pytest.mark.parametrize("limit", ["1", "3", "100"])
def test_every_profile_is_on_one_page_the_latest_first(shared: Server, limit: str) -> None:
    service = f"paged-{limit}"
    for hour in (3, 1, 4, 1, 5):
        for labels in ("a=1", "a=2"):  # the same content and time, in two series
            store(shared, profile_of("x", time_nanos=EPOCH + hour * SECOND), service=service, labels=labels)
        store(shared, profile_of(f"{hour}", time_nanos=EPOCH + hour * SECOND), service=service)
    found = listed(shared, service=service, limit=limit)
    assert len(found) == len({profile["id"] for profile in found}) == 12
    assert [profile["time"] for profile in found] == sorted((p["time"] for p in found), reverse=True)
    assert len(listed(shared, service=service, limit=limit, labels="a=1|2", from_="2023-11-14T22:13:23")) == 6


def test_a_cursor_stays_right_while_profiles_come_in(own: OwnService) -> None:
    for second in range(0, 20, 2):
        store(own, profile_of(f"{second}", time_nanos=EPOCH + second * SECOND))
    first = own.ask("/v1/profiles", limit="5").json()
    for second in range(1, 21, 2):
        store(own, profile_of(f"{second}", time_nanos=EPOCH + second * SECOND))
    second_page = own.ask("/v1/profiles", limit="100", cursor=first["next"]).json()
    times = [profile["time"] for profile in (*first["profiles"], *second_page["profiles"])]
    assert times == sorted(set(times), reverse=True)
    # Of the profiles that came later, those that are older than the first page.
    assert len(times) == 5 + 5 + 5


@pytest.mark.parametrize(
    "cursor", ["x", "W10", "WzFd", "bnVsbA", "ä", "W" * 1000, "WzEsMiwzXQ", "W1tbW1s", SURROGATE]
)
@pytest.mark.parametrize("path", ["/v1/profiles", "/v1/services"])
def test_a_made_up_cursor_is_refused(shared: Server, path: str, cursor: str) -> None:
    answer = shared.ask(path, cursor=cursor)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert "cursor" in answer.json()["detail"]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "1.5", "ten", "²", "9" * 5000])
def test_a_limit_is_a_number_up_to_1000(shared: Server, limit: str) -> None:
    for path in ("/v1/profiles", "/v1/services"):
        answer = shared.ask(path, limit=limit)
        assert answer.status_code == 400
        assert "limit" in answer.json()["detail"]


@pytest.mark.parametrize("query", [{"to": "9999-12-31"}, {"from": "0001-01-01"}])
def test_times_that_no_profile_can_have_are_refused(shared: Server, query: dict[str, str]) -> None:
    for path in ("/v1/profiles", "/v1/top", "/v1/merge"):
        assert shared.ask(path, **query).status_code == 400
    assert shared.ask("/v1/profiles", last="999999w").status_code == 200
