"""A service without profiles is refused with the stored name that may be meant, if the key may read it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.interop.conftest import PROFILE
from tests.server import Server

_ROUTES = [
    "/v1/merge",
    "/v1/merge?format=go",
    "/v1/release",
    "/v1/report",
    "/v1/top",
    "/v1/releases/3/profile",
]
_LONG = "a" * 60
_NOTHING = "no stored profile matches the selection"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.merge_keys.write_text(f"{server.merge_key}\nof-logs service=log*\nof-both service=logsumm,shop\n")
    with server:
        for service in ("logsum", "checkout", "hidden-checkouts", _LONG):
            server.submit(PROFILE.read_bytes(), query={"service": service})
        yield server


def detail(server: Server, path: str, key: str, **query: str) -> str:
    url = httpx.URL(f"{server.base_url}{path}").copy_merge_params(query)
    answer = httpx.get(url, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 404, answer.text
    return str(answer.json()["detail"])


@pytest.mark.parametrize("path", _ROUTES)
def test_the_nearest_name_is_told(server: Server, path: str) -> None:
    said = detail(server, path, server.merge_key, service="logsumm")
    assert said.endswith("; no service is named 'logsumm': did you mean 'logsum'?")
    assert detail(server, path, "of-logs", service="logSum").endswith("did you mean 'logsum'?")


def test_a_key_learns_no_name_of_a_service_that_it_is_not_for(server: Server) -> None:
    """Not even of one that a pattern of its key leaves out by a letter."""
    assert detail(server, "/v1/merge", server.merge_key, service="logsumm").endswith("'logsum'?")
    assert detail(server, "/v1/merge", "of-both", service="logsumm") == _NOTHING
    assert detail(server, "/v1/release", "of-both", service="logsumm") == _NOTHING
    assert detail(server, "/v1/merge", server.merge_key, service="log-checkout").endswith("'checkout'?")
    assert detail(server, "/v1/merge", "of-logs", service="log-checkout") == _NOTHING


def test_a_stored_service_and_one_like_none_get_no_name(server: Server) -> None:
    assert detail(server, "/v1/merge", server.merge_key, service="logsum", type="heap") == _NOTHING
    assert detail(server, "/v1/merge", server.merge_key, service="quite-another") == _NOTHING


def test_long_names_are_not_compared(server: Server) -> None:
    """The time of a comparison grows with the square of their length."""
    assert detail(server, "/v1/merge", server.merge_key, service=f"{_LONG}b") == _NOTHING
