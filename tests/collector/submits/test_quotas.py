"""Quotas: a submit over a quota is refused before its body is read, and told when to come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.collector.clock import today, wait_for_a_long_day
from tests.faults.stacks import EPOCH, SECOND, profile_of

if TYPE_CHECKING:
    import httpx

    from tests.server import Server


def send(server: Server, number: int, service: str = "a", time_nanos: int | None = None) -> httpx.Response:
    """Send a profile of today, or of another time."""
    began = today() if time_nanos is None else time_nanos
    profile = profile_of(f"{number}", time_nanos=began + number * SECOND)
    return server.submit(profile, query={"service": service})


@pytest.fixture
def three_a_day(stopped: Server) -> Server:
    wait_for_a_long_day()
    stopped.environment["PGOF_QUOTA_PROFILES"] = "3"
    stopped.start()
    return stopped


def test_a_service_has_a_quota_of_profiles_a_day(three_a_day: Server) -> None:
    assert [send(three_a_day, number).status_code for number in range(3)] == [204] * 3
    for _ in range(2):
        answer = send(three_a_day, 3)
        assert (answer.status_code, answer.headers["Content-Type"]) == (429, "application/problem+json")
        assert answer.json()["detail"] == (
            "service a has submitted its 3 profiles of today (PGOF_QUOTA_PROFILES): "
            "submit again after midnight UTC"
        )
        assert 0 < int(answer.headers["Retry-After"]) <= 86_400
    assert send(three_a_day, 3, "b").status_code == 204
    three_a_day.restart()
    assert send(three_a_day, 4).status_code == 429
    assert len(three_a_day.blobs()) == 4


def test_refused_profiles_do_not_count(three_a_day: Server) -> None:
    for _ in range(5):
        assert three_a_day.submit(b"no profile", query={"service": "a"}).status_code == 400
    assert send(three_a_day, 1).status_code == 204


def test_a_retry_does_not_count(three_a_day: Server) -> None:
    assert [send(three_a_day, number).status_code for number in (0, 0, 0, 1, 2)] == [204] * 5
    assert send(three_a_day, 3).status_code == 429


def test_the_body_is_not_read(three_a_day: Server) -> None:
    for number in range(3):
        send(three_a_day, number)
    answer = three_a_day.submit(b"no profile", query={"service": "a"})
    assert answer.status_code == 429
    assert "bytes" not in three_a_day.wait_for_log("request", 4)


def test_profefes_agents_are_told_to_come_again(three_a_day: Server) -> None:
    answers = [
        three_a_day.client.post(
            "/api/0/profiles",
            params={"service": "a", "type": "cpu"},
            content=profile_of(f"{number}"),
            headers={"Authorization": f"Bearer {three_a_day.submit_key}"},
        )
        for number in range(4)
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 503]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert answers[-1].json()["code"] == 503


def test_a_service_has_a_quota_of_stored_bytes(stopped: Server) -> None:
    stopped.environment["PGOF_QUOTA_MEGABYTES"] = f"{300 / (1 << 20)}"
    stopped.start()
    statuses = [send(stopped, number, time_nanos=EPOCH).status_code for number in range(5)]
    assert statuses[0] == 204
    assert statuses[-1] == 429
    assert send(stopped, 5, "b", time_nanos=EPOCH).status_code == 204
