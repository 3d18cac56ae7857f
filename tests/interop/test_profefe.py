"""profefe's clients: requests as its agent and kube-profefe send them, byte by byte, and go tool pprof."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest
from pprof_merge import decode
from pprof_proto import profile_pb2

from tests.faults.stacks import profile_of
from tests.oracle.content import content, difference
from tests.oracle.oracle import go_environment, go_tool
from tests.server import Server

PROFILES = Path(__file__).parents[1] / "testdata" / "profiles"
AGENT_TYPES = ["cpu", "heap", "block", "mutex", "goroutine", "threadcreate"]

# What both really send. The agent encodes the parts of labels, and then all of the query.
AGENT_POST = """\
POST /api/0/profiles?labels=version%3D1.4%2Cregion%3Deu%2Bwest%252F1%2Cnote%3Da%253Db%252Cc&service=demo&type={type} HTTP/1.1
Host: 127.0.0.1:10100
User-Agent: Go-http-client/1.1
Content-Length: {length}
Accept-Encoding: gzip

"""  # noqa: E501
# kube-profefe encodes no part, and has a comma before the first one.
KUBE_POST = """\
POST /api/0/profiles?instance_id=10.0.0.1&labels=%2Cnamespace%3Ddefault%2Cfrom%3Dkube-profefe%2Cpod%3Dshop-0&service=shop&type=cpu HTTP/1.1
Host: 127.0.0.1:10100
User-Agent: Go-http-client/1.1
Content-Length: {length}
Content-Type: application/octet-stream
Useragent: kubectl-profefe
Accept-Encoding: gzip

"""  # noqa: E501
KUBE_GET = """\
GET /api/0/profiles?from=2026-11-20T10%3A52%3A26&labels=%2Cnamespace%3Ddefault&service={service}&to=2026-11-20T12%3A52%3A26&type=cpu HTTP/1.1
Host: 127.0.0.1:10100
User-Agent: Go-http-client/1.1
Accept-Encoding: gzip

"""  # noqa: E501
KUBE_SERVICES = """\
GET /api/0/services HTTP/1.1
Host: 127.0.0.1:10100
User-Agent: Go-http-client/1.1
Accept-Encoding: gzip

"""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An open one: neither these clients nor go tool pprof send a key."""
    with Server(tmp_path_factory.mktemp("open"), {"PGOF_PROFEFE_OPEN": "true"}) as server:
        yield server


class Wire:
    """A connection that is kept open between requests, as Go's client keeps it."""

    def __init__(self, connection: socket.socket, received: IO[bytes]) -> None:
        self._connection = connection
        self._received = received

    def ask(self, head: str, body: bytes = b"") -> tuple[int, Any]:
        """Sends a request; the status and the JSON that comes back."""
        self._connection.sendall(head.replace("\n", "\r\n").encode() + body)
        status = int(self._received.readline().split()[1])
        headers = {}
        while line := self._received.readline().strip().decode():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        assert headers["content-type"] == "application/json"
        answer = json.loads(self._received.read(int(headers["content-length"])))
        assert answer["code"] == status
        return status, answer


@pytest.fixture
def wire(collector: Server) -> Iterator[Wire]:
    address = urlsplit(collector.base_url)
    with (
        socket.create_connection((str(address.hostname), address.port or 0), timeout=60) as connection,
        connection.makefile("rb") as received,
    ):
        yield Wire(connection, received)


def check_saved(saved: dict[str, Any], service: str, type_: str) -> None:
    """An answer that a Go client decodes into strings and a time."""
    assert (saved["service"], saved["type"]) == (service, type_)
    assert isinstance(saved["id"], str)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", saved["created_at"])


def test_what_the_agent_sends(wire: Wire) -> None:
    for type_ in AGENT_TYPES:
        body = profile_of("a", type_=type_)
        status, answer = wire.ask(AGENT_POST.format(type=type_, length=len(body)), body)
        assert status == 200
        check_saved(answer["body"], "demo", type_)
        labels = {label["key"]: label["value"] for label in answer["body"]["labels"]}
        assert labels == {"version": "1.4", "region": "eu west/1", "note": "a=b,c"}
        again = wire.ask(AGENT_POST.format(type=type_, length=len(body)), body)
        assert again == (status, answer)


def test_what_kube_profefe_sends(wire: Wire) -> None:
    profile = profile_pb2.Profile.FromString(
        gzip.decompress((PROFILES / "apisvc-v1-s1-002.pb.gz").read_bytes())
    )
    profile.time_nanos = 1_795_175_546_661_278_144  # within what KUBE_GET asks for
    body = gzip.compress(profile.SerializeToString())
    status, saved = wire.ask(KUBE_POST.format(length=len(body)), body)
    assert status == 200
    check_saved(saved["body"], "shop", "cpu")
    labels = {label["key"]: label["value"] for label in saved["body"]["labels"]}
    assert labels == {"namespace": "default", "from": "kube-profefe", "pod": "shop-0"}
    assert wire.ask(KUBE_GET.format(service="shop")) == (200, {"code": 200, "body": [saved["body"]]})
    assert wire.ask(KUBE_GET.format(service="nobody")) == (404, {"code": 404, "error": "nothing found"})
    status, services = wire.ask(KUBE_SERVICES)
    assert status == 200
    assert "shop" in services["body"]


def go_tool_pprof(folder: Path, *arguments: str | Path) -> str:
    """Return what `go tool pprof ...` prints, which leaves its files in `folder`."""
    done = subprocess.run(
        [go_tool("pprof"), "-symbolize=none", *arguments],
        env=go_environment() | {"PPROF_TMPDIR": str(folder), "PPROF_BINARY_PATH": os.devnull},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_go_tool_pprof_reads_the_urls(collector: Server, tmp_path: Path) -> None:
    """They give it what it makes of the files."""
    files = sorted(
        PROFILES.glob("apisvc-v1-s*.pb.gz"), key=lambda file: decode(file.read_bytes()).header.time_nanos
    )
    ids = []
    for file in reversed(files):
        answer = collector.client.post(
            "/api/0/profiles?service=tool&type=cpu&labels=of=tool", content=file.read_bytes()
        )
        ids.append(answer.json()["body"]["id"])
    api = f"{collector.base_url}/api/0/profiles"
    for url, expected in {
        f"{api}/merge?service=tool&type=cpu": files,
        f"{api}/merge?service=tool&type=cpu&labels=of=tool&from=2000-01-01T00:00:00": files,
        f"{api}/merge?service=tool&type=cpu&limit=2": files[-2:],
        f"{api}/{'+'.join(ids)}": files,
        f"{api}/{ids[0]}": files[-1:],
    }.items():
        fetched, read = tmp_path / "fetched", tmp_path / "read"
        go_tool_pprof(tmp_path, "-proto", f"-output={fetched}", url)
        go_tool_pprof(tmp_path, "-proto", f"-output={read}", *expected)
        contents = [content(gzip.decompress(file.read_bytes())) for file in (fetched, read)]
        assert difference(*contents) == ""
        assert "flat%" in go_tool_pprof(tmp_path, "-top", url)
