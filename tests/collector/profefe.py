"""profefe's API as its clients call it, on a collector that asks for keys."""

from __future__ import annotations

from typing import Any, Final

import httpx

from tests.faults.stacks import tally
from tests.server import Server, bearer

PROFILES: Final = "/api/0/profiles"
MERGE: Final = f"{PROFILES}/merge"
TYPES: Final = ["cpu", "heap", "block", "mutex", "goroutine", "threadcreate", "allocs", "other"]
WHOLE_RANGE: Final = {"from": "2000-01-01T00:00:00", "to": "2100-01-01T00:00:00"}


def post(server: Server, profile: bytes, **query: str) -> httpx.Response:
    """Submit a CPU profile of the service `demo`, unless the query says otherwise."""
    every = {"service": "demo", "type": "cpu"} | query
    return server.client.post(PROFILES, content=profile, params=every, headers=bearer(server.submit_key))


def stored(server: Server, profile: bytes, **query: str) -> dict[str, Any]:
    """Submit a profile as `post` does, and return its entry in the answer."""
    answer = post(server, profile, **query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json"), answer.text
    assert answer.json()["code"] == 200
    described: dict[str, Any] = answer.json()["body"]
    return described


def get(server: Server, path: str, method: str = "GET", **query: str) -> httpx.Response:
    """Send a request with a merge key."""
    return server.client.request(method, path, params=query, headers=bearer(server.merge_key))


def listed(server: Server, **query: str) -> list[dict[str, Any]]:
    """Return the listed profiles of the service `demo`, none if the answer is 404."""
    answer = get(server, PROFILES, **{"service": "demo", **query})
    if answer.status_code == 404:
        assert_error(answer, 404, "nothing found")
        return []
    assert (answer.status_code, answer.json()["code"]) == (200, 200), answer.text
    found: list[dict[str, Any]] = answer.json()["body"]
    return found


def merged(server: Server, **query: str) -> dict[str, int]:
    answer = get(server, MERGE, **{"service": "demo", "type": "cpu", **query})
    assert answer.status_code == 200, answer.text
    return dict(tally(answer.content))


def assert_error(answer: httpx.Response, status: int, words: str = "") -> None:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json"), answer.text
    error = answer.json()
    assert error == {"code": status, "error": error["error"]}
    assert words in error["error"]
    assert error["error"]
