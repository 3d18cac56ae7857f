"""Real clients of Pyroscope push: Python and Node SDKs, and Connect as Grafana's programs speak it.

`make setup WITH=clients` installs them. Functions are waited for: a client sends every 10 s.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import playwright
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pgo_collector.routes.pyroscope import push_pb2
from pprof_merge import decode

from tests.collector.pushing import push_request, stored
from tests.collector.routes.test_querier_reads import drawn
from tests.faults.stacks import profile_of, tally
from tests.interop.failing import MESSAGE, fails, told, untold, uploads
from tests.server import Server

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "clients" / "pyroscope"
# Debian's node is older than the clients ask for; Playwright brings one of its own.
NODE = Path(playwright.__file__).parent / "driver" / "node"
_PATIENCE_SECONDS = 300.0


def installed(name: str) -> Path:
    """Return the folder in .dev with a client."""
    folder = ROOT / ".dev" / name
    if not (folder / ".complete").exists():
        pytest.skip("call `make setup WITH=clients`")
    return folder


@contextmanager
def running(
    *command: str | Path, log: Path = Path(os.devnull), environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; it ends when its standard input is closed."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=os.environ | environment
        ) as program,
    ):
        try:
            yield program
        finally:
            program.kill()


def wait_for(what: Callable[[], bool], program: subprocess.Popen[bytes], server: Server) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not what():
        assert program.poll() is None, "the client has ended"
        assert time.monotonic() < deadline, server.events("request")
        time.sleep(0.2)


def has_function(server: Server, service: str, type_: str, name: str) -> bool:
    """Return whether a stored function of this type has such a name."""
    answer = server.ask("/v1/top", service=service, type_=type_, by="function", n="1000", sort="cum")
    return answer.status_code == 200 and any(name in row["name"] for row in answer.json()["rows"])


def statuses(server: Server, path: str) -> set[int]:
    return {line["status"] for line in server.events("request") if line["path"] == path}


@pytest.mark.system
@pytest.mark.parametrize(
    ("version", "path"), [("0.8.7", "/ingest"), ("1.4.0", "/push.v1.PusherService/Push")]
)
def test_a_python_program_pushes_its_profiles(tmp_path: Path, version: str, path: str) -> None:
    """Takes over 20 s, since the client sends every 10 s."""
    folder = installed(f"pyroscope-io-{version}")
    with Server(tmp_path) as server:
        with running(
            sys.executable, PROGRAMS / "busy.py", folder, server.base_url, server.submit_key
        ) as client:
            wait_for(
                lambda: has_function(server, "py.shop", "process_cpu", "count_in_python"), client, server
            )
        assert statuses(server, path) == {200}
        assert {type_ for type_, _ in stored(server, "py.shop")} == {"process_cpu"}
        answer = server.merge(query={"service": "py.shop"})
        assert answer.status_code == 404


@pytest.mark.system
@pytest.mark.alike(1)
@pytest.mark.parametrize("package", ["@pyroscope/nodejs", "pyroscope-nodejs-0.4"])
def test_a_node_program_pushes_its_profiles(tmp_path: Path, package: str) -> None:
    folder = installed("pyroscope-nodejs")
    with Server(tmp_path) as server:
        with running(
            NODE, PROGRAMS / "busy.js", folder, package, server.base_url, server.submit_key
        ) as client:
            wait_for(
                lambda: (
                    has_function(server, "node.shop", "wall", "countInJavaScript")
                    and [type_ for type_, _ in stored(server, "node.shop")].count("heap") >= 2
                ),
                client,
                server,
            )
        assert statuses(server, "/ingest") == {200}
        # What the heap holds isn't added up, and Grafana asks for it by Pyroscope's name.
        held = server.ask("/v1/top", service="node.shop", type_="heap").json()
        raw = decode(server.merge(query={"service": "node.shop", "type": "heap"}).content)
        snapshots, total = held["basis"]["snapshots"], int(raw.samples.values[:, -1].sum())
        assert (held["basis"]["kind"], abs(held["total"] - total / snapshots) <= 0.5) == ("state", True)
        kind = f"memory:{held['sample_type']['type']}:bytes:space:bytes"
        assert drawn(server, '{service_name="node.shop"}', kind).total == held["total"]


@pytest.mark.system
@pytest.mark.exhaustive
@pytest.mark.alike(1)
@pytest.mark.parametrize(
    ("version", "path"), [("0.8.7", "/ingest"), ("1.4.0", "/push.v1.PusherService/Push")]
)
@pytest.mark.long
def test_a_python_program_outlives_a_wrong_key_a_500_and_an_outage(
    tmp_path: Path, version: str, path: str
) -> None:
    """Takes over two minutes, since the client sends every 10 s. What it sends in vain it drops."""
    folder, log = installed(f"pyroscope-io-{version}"), tmp_path / "log"
    with Server(tmp_path / "home") as server:
        key = "a-key-that-comes-later"
        command = (sys.executable, PROGRAMS / "busy.py", folder, server.base_url, key)
        with running(*command, log=log) as client:
            wait_for(lambda: statuses(server, path) == {401}, client, server)
            server.submit_keys.write_text(f"{key}\n")
            wait_for(lambda: statuses(server, path) == {401, 200}, client, server)
            with fails(server) as receiver:
                wait_for(lambda: len(uploads(receiver, path)) >= 3, client, server)
                assert len({*uploads(receiver, path)}) == len(uploads(receiver, path))
            wait_for(lambda: "error sending request" in told(log), client, server)
            reasons = ("no key that this route takes", MESSAGE.decode()) if version == "1.4.0" else ()
            assert untold(log, "Session failed 401", "Session failed 500", *reasons) == []
            server.start()
            wait_for(lambda: statuses(server, path) == {200}, client, server)
            assert has_function(server, "py.shop", "process_cpu", "count_in_python")


@pytest.mark.system
@pytest.mark.exhaustive
@pytest.mark.alike(1)
@pytest.mark.parametrize("package", ["@pyroscope/nodejs", "pyroscope-nodejs-0.4"])
def test_a_node_program_outlives_a_wrong_key_a_500_and_an_outage(tmp_path: Path, package: str) -> None:
    """Takes over 20 s. What the client sends in vain it drops; it tells only those who debug it."""
    folder, log = installed("pyroscope-nodejs"), tmp_path / "log"
    with Server(tmp_path / "home") as server:
        key = "a-key-that-comes-later"
        command = (NODE, PROGRAMS / "busy.js", folder, package, server.base_url, key)
        with running(*command, log=log, environment={"DEBUG": "pyroscope*"}) as client:
            wait_for(lambda: statuses(server, "/ingest") == {401}, client, server)
            server.submit_keys.write_text(f"{key}\n")
            wait_for(lambda: statuses(server, "/ingest") == {401, 200}, client, server)
            with fails(server) as receiver:
                wait_for(lambda: len(uploads(receiver, "/ingest")) >= 3, client, server)
                assert len({*uploads(receiver, "/ingest")}) == len(uploads(receiver, "/ingest"))
            wait_for(lambda: "Error sending data ingest" in told(log), client, server)
            assert untold(log, "HTTP 401", "HTTP 500", MESSAGE.decode()) == []
            server.start()
            wait_for(lambda: statuses(server, "/ingest") == {200}, client, server)
            wait_for(lambda: has_function(server, "node.shop", "wall", "countInJavaScript"), client, server)


def connected(server: Server, form: str, message: bytes, key: str = Server.submit_key) -> str:
    """Return what Connect's client prints after a Push."""
    schema = FileDescriptorProto()
    push_pb2.DESCRIPTOR.CopyToProto(schema)
    pusher = schema.service.add(name="PusherService")
    pusher.method.add(name="Push", input_type=".push.v1.PushRequest", output_type=".push.v1.PushResponse")
    schema.message_type.add(name="PushResponse")
    lines = (base64.b64encode(part).decode() for part in (schema.SerializeToString(), message))
    finished = subprocess.run(
        [NODE, PROGRAMS / "connect.mjs", installed("pyroscope-nodejs"), server.base_url, key, form],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=True,
    )
    return finished.stdout.strip()


@pytest.mark.system
@pytest.mark.parametrize("form", ["proto", "json"])
def test_a_client_of_connect_pushes_and_reads_errors(server: Server, form: str) -> None:
    labels = {"__name__": "process_cpu", "service_name": f"connect-{form}"}
    message = push_request((labels, [profile_of("a")])).SerializeToString()
    assert connected(server, form, message) == "ok"
    assert tally(server.merge(query={"service": f"connect-{form}"}).content) == {"a": 1}
    denied = connected(server, form, message, "wrong")
    assert denied.startswith("Unauthenticated: the key that was sent is no key")
    broken = push_request((labels, [b"hello"])).SerializeToString()
    assert connected(server, form, broken).startswith("InvalidArgument: not a profile: ")


@pytest.mark.system
@pytest.mark.parametrize("form", ["proto", "json"])
def test_a_client_of_connect_sees_a_500_and_an_outage(tmp_path: Path, form: str) -> None:
    labels = {"__name__": "process_cpu", "service_name": "connect"}
    message = push_request((labels, [profile_of("a")])).SerializeToString()
    with Server(tmp_path) as server:
        with fails(server):
            assert connected(server, form, message) == "Unknown: HTTP 500"
        assert connected(server, form, message).startswith("Unavailable: ")
        server.start()
        assert connected(server, form, message) == "ok"
