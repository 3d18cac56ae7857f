"""Tests of what a start imports, and a first use, as the interpreter tells it (PYTHONPROFILEIMPORTTIME)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.stacks import profile_of, tally
from tests.server import Installed, LogLine, Server

pytestmark = [pytest.mark.sqlite, pytest.mark.folder]

# What other forms of a start need, or requests that most servers don't get in their first minute.
NOT_AT_A_START = (
    "alembic",
    "distributed",
    "fastapi",
    "grpc",
    "h2",
    "httpx",
    "jinja2",
    "obstore",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "pgo_collector.ui.pages",
    "pydantic",
    "sqlalchemy.dialects.postgresql",
)
# What takes half of a start, and is imported while /healthz is answered.
NOT_BEFORE_IT_LISTENS = ("google", "pgo_collector.routes", "pgo_collector.ui", "sqlalchemy")


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that says on standard error what each of its processes imports."""
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}
    with Server(tmp_path_factory.mktemp("telling"), environment, Installed()) as server:
        yield server


def imported(lines: Sequence[LogLine]) -> list[str]:
    """Return the modules whose imports some lines of the log tell."""
    told = [line["line"] for line in lines if line["event"] == "not JSON"]
    return [line.rpartition("|")[2].strip() for line in told if line.startswith("import time:")]


def place_of(server: Server, event: str) -> int:
    return [line["event"] for line in server.log].index(event)


def within(packages: Sequence[str], modules: Sequence[str]) -> list[str]:
    return [name for name in modules if any(f"{name}.".startswith(f"{each}.") for each in packages)]


def test_a_start_imports_nothing_that_it_does_not_need(telling: Server) -> None:
    start = imported(telling.log[: place_of(telling, "serving")])
    assert "numpy" in start
    assert not within(NOT_AT_A_START, start)


def test_a_server_listens_before_it_imports_what_it_serves_with(telling: Server) -> None:
    listening, serving = place_of(telling, "listening"), place_of(telling, "serving")
    assert not within(NOT_BEFORE_IT_LISTENS, imported(telling.log[:listening]))
    assert within(NOT_BEFORE_IT_LISTENS, imported(telling.log[listening:serving]))


def test_the_first_submit_and_merge_import_neither_the_engine_nor_numpy(telling: Server) -> None:
    before = len(telling.log)
    telling.submit(profile_of("a"))
    telling.submit(profile_of("b"))
    assert telling.merge(format_="go").status_code == 200
    assert tally(telling.merge().content) == {"a": 1, "b": 1}
    telling.wait_for_log("request", 4)
    found = imported(telling.log[before:])
    assert found, "what a merge needs is imported when it is needed"
    assert not within(["pgo_collector", "numpy._core", "numpy.lib"], found)


def test_the_first_requests_to_pages_import_the_pages_once(telling: Server) -> None:
    before = len(telling.log)
    with ThreadPoolExecutor(4) as clients:
        answers = [*clients.map(lambda _: telling.client.get("/ui/sign-in"), range(4))]
    assert {answer.status_code for answer in answers} == {200}
    telling.stop()
    found = imported(telling.log[before:])
    assert found.count("pgo_collector.ui.pages.flame") == 1
