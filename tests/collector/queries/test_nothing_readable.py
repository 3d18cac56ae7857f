"""Questions about profiles none of which can be read any more, as after a fault of the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.collector.querying import CPU, ask_json
from tests.collector.visitor import Visitor
from tests.faults.stacks import EPOCH, profile_of
from tests.server import Server

SPAN = {"start": EPOCH // 10**6 - 1000, "end": EPOCH // 10**6 + 60_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collector with a service whose one profile is damaged, and one that is sound."""
    with Server(tmp_path_factory.mktemp("damaged")) as server:
        assert server.submit(profile_of("a"), query={"service": "damaged"}).status_code == 204
        (blob,) = server.blobs()
        assert server.submit(profile_of("a"), query={"service": "sound"}).status_code == 204
        server.kill()
        for rows in (server.data / "rows").iterdir():
            rows.unlink()
        blob.write_bytes(b"damaged")
        server.start()
        yield server


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/v1/merge", {}),
        ("/v1/flame", {}),
        ("/v1/flame", {"base_labels": "a="}),
        ("/v1/top", {}),
        ("/v1/function", {"function": "a"}),
        ("/v1/series", {"function": "a"}),
        ("/v1/histogram", {}),
        ("/v1/heatmap", {}),
    ],
)
def test_our_api_says_why(server: Server, path: str, query: dict[str, str]) -> None:
    answer = server.ask(path, service="damaged", **query)
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert "none of the 1 stored profiles can be " in answer.json()["detail"]


def test_a_sound_selection_is_not_compared_with_a_base_of_them(server: Server) -> None:
    answer = server.ask("/v1/flame", service="sound", base_service="damaged")
    assert answer.status_code == 404
    assert "none of the 1 stored profiles can be taken: " in answer.json()["detail"]


@pytest.mark.parametrize("page", ["", "/top", "/function?function=a", "/latency", "/series?function=a"])
def test_pages_say_why(server: Server, page: str) -> None:
    found = Visitor(server).page(f"/ui/services/damaged{page}", 404)
    assert "none of the 1 stored profiles can be taken: " in found.text


@pytest.mark.parametrize(
    ("method", "fields"),
    [("SelectMergeStacktraces", {}), ("SelectMergeProfile", {}), ("SelectSeries", {"step": 15})],
)
def test_grafana_finds_nothing(server: Server, method: str, fields: dict[str, int]) -> None:
    asked: dict[str, Any] = {"profileTypeID": CPU, **SPAN, **fields}
    assert ask_json(server, method, **asked, labelSelector='{service_name="damaged"}') == {}
    assert ask_json(server, method, **asked, labelSelector='{service_name="sound"}') != {}
