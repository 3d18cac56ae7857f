"""Real tracers of Datadog, for Python and Node, upload profiles of a busy program.

`make setup WITH=clients` installs them. They ask `/info`, and send every 2 s what they can't be told a key
for, as to an agent: so the route is open, or refuses them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collector.pushing import stored
from tests.interop.failing import fails, told, uploads
from tests.interop.test_pyroscope import NODE, has_function, installed, running, statuses, wait_for
from tests.server import Server

pytestmark = pytest.mark.system

_PROGRAMS = Path(__file__).parent / "clients" / "datadog"
_UPLOAD = "/profiling/v1/input"
_OPEN = {"PGOF_DATADOG_OPEN": "true"}


def test_a_python_program_uploads_its_profiles(tmp_path: Path) -> None:
    folder = installed("ddtrace-4.16.0")
    with Server(tmp_path, _OPEN) as server:
        with running(sys.executable, _PROGRAMS / "busy.py", folder, server.base_url) as client:
            wait_for(
                lambda: has_function(server, "py.shop", "process_cpu", "count_in_python"), client, server
            )
        assert statuses(server, _UPLOAD) == {200}
        found = stored(server, "py.shop")
        assert {"process_cpu", "wall"} <= {type_ for type_, _ in found}
        assert all(
            labels.items() >= {"env": "test", "version": "1.4", "region": "eu"}.items() for _, labels in found
        )
        assert server.merge(query={"service": "py.shop"}).status_code == 404


def test_a_node_program_uploads_its_profiles(tmp_path: Path) -> None:
    folder = installed("dd-trace")
    with Server(tmp_path, _OPEN) as server:
        with running(NODE, _PROGRAMS / "busy.js", folder, server.base_url) as client:
            wait_for(
                lambda: (
                    has_function(server, "node.shop", "wall", "countInJavaScript")
                    and "heap" in {type_ for type_, _ in stored(server, "node.shop")}
                ),
                client,
                server,
            )
        assert statuses(server, _UPLOAD) == {200}
        assert server.merge(query={"service": "node.shop"}).status_code == 404


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", ["busy.py", "busy.js"])
def test_a_program_outlives_refusals_and_an_outage(tmp_path: Path, program: str) -> None:
    """Takes over 20 s. Python's tracer drops what it sends in vain; Node's sends it again, some times."""
    is_python = program.endswith(".py")
    service = "py.shop" if is_python else "node.shop"
    folder = installed("ddtrace-4.16.0" if is_python else "dd-trace")
    command = sys.executable if is_python else NODE
    log = tmp_path / "log"
    with (
        Server(tmp_path / "home") as server,
        running(command, _PROGRAMS / program, folder, server.base_url, log=log) as client,
    ):
        wait_for(lambda: statuses(server, _UPLOAD) == {403}, client, server)
        with fails(server) as receiver:
            wait_for(lambda: len(uploads(receiver, _UPLOAD)) >= 3, client, server)
            bodies = uploads(receiver, _UPLOAD)
        if is_python:
            assert len({*bodies}) == len(bodies)
            wait_for(lambda: "Connection refused" in told(log), client, server)
        server.environment |= _OPEN
        server.start()
        wait_for(lambda: bool(stored(server, service)), client, server)
        assert statuses(server, _UPLOAD) == {200}
