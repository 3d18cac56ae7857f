"""Profiles taken now by real agents: with the agent's key, and through a proxy with an authority."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pgo_agent.backends import backends, choose
from pgo_agent.errors import AgentError

from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.serve.test_serve import IN_REQUESTS
from tests.agent.serving import Serving
from tests.collector.ui.test_pages import titles
from tests.collector.visitor import Visitor
from tests.interop.nginx_process import running_nginx
from tests.server import Server

pytestmark = [
    needs_gcc,
    pytest.mark.system("openssl"),
]
KEY = "of-the-agent"
LIVE = "/ui/services/db/live"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Run an agent with a key beside a busy program."""
    folder = tmp_path_factory.mktemp("agent")
    (folder / "key").write_text(f"{KEY}\n")
    with (
        running(build(folder)),
        Serving(folder, "--executable", NAME, "--key-file", folder / "key") as serving,
    ):
        yield serving


@pytest.fixture(scope="module")
def request_of() -> str:
    """Return the body of a request for a profile, by a profiler that works here."""
    known = backends()
    try:
        profiler = IN_REQUESTS[choose(known[name] for name in ("perf", "bpftrace", "bcc")).name]
    except AgentError as error:
        pytest.skip(str(error))
    return json.dumps({"profiler": {profiler: None}, "timeout_seconds": 2}, separators=(",", ":"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the file of an authority's certificate, and that of a certificate by it with its key."""
    folder = tmp_path_factory.mktemp("authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    new_key = "-newkey rsa:2048 -nodes"
    for command in (
        f"req -x509 {new_key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
        f"req {new_key} -subj /CN=target -keyout target.key -out target.csr",
        "x509 -req -days 2 -in target.csr -CA ca.pem -CAkey ca.key -extfile names -out target.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text((folder / "target.pem").read_text() + (folder / "target.key").read_text())
    return folder / "ca.pem", both


def test_an_agent_takes_a_profile_for_whoever_has_its_key(
    tmp_path: Path, agent: Serving, request_of: str
) -> None:
    keys, host = tmp_path / "capture_keys", urlsplit(agent.url).netloc
    keys.write_text("")
    settings = {
        "PGOF_CAPTURE_TARGETS": f"db=post+{agent.url}/profile/cpu#{request_of}",
        "PGOF_CAPTURE_KEYS_FILE": str(keys),
    }
    with Server(tmp_path / "collector", settings) as server:
        visitor = Visitor(server)
        refused = visitor.post(LIVE, {"instance": host})
        assert (refused.status_code, "answered with 401" in refused.text) == (502, True)
        for line in ("one-word", f"{host} {KEY} more", f"{host} a\n{host} b"):
            keys.write_text(line)
            malformed = visitor.post(LIVE, {"instance": host})
            assert (malformed.status_code, "line" in malformed.text) == (502, True)
        keys.write_text(f"127.0.0.1:1 another\n\n{host} {KEY}\n")
        answer = visitor.post(LIVE, {"instance": host})
        assert answer.status_code == 303, answer.text
        page = visitor.page(LIVE)
        assert "middle" in titles(page)
        (profile,) = server.ask("/v1/profiles", service="db").json()["profiles"]
        assert profile["labels"] == {"instance": host}
        assert KEY not in page.text + json.dumps(server.log)
        # The agent says what is wrong with a request.
        server.environment["PGOF_CAPTURE_TARGETS"] = f"db=post+{agent.url}/profile/cpu#{{}}"
        server.restart()
        wrong = Visitor(server).post(LIVE, {"instance": host})
        assert (wrong.status_code, "profiler must be one of" in wrong.text) == (502, True)


def test_a_target_with_an_authority_of_its_own_is_trusted_if_that_is_named(
    tmp_path: Path, agent: Serving, request_of: str, authority: tuple[Path, Path]
) -> None:
    trusted, certificate = authority
    keys = tmp_path / "capture_keys"
    with running_nginx(tmp_path, agent.url, request_buffering=False, certificate=certificate) as url:
        host = urlsplit(url).netloc
        keys.write_text(f"{host} {KEY}\n")
        settings = {
            "PGOF_CAPTURE_TARGETS": f"db=post+{url}/profile/cpu#{request_of}",
            "PGOF_CAPTURE_KEYS_FILE": str(keys),
        }
        with Server(tmp_path / "collector", settings) as server:
            refused = Visitor(server).post(LIVE, {"instance": host})
            assert (refused.status_code, "certificate verify failed" in refused.text) == (502, True)
            server.environment["PGOF_CAPTURE_CA_FILE"] = str(trusted)
            server.restart()
            visitor = Visitor(server)
            answer = visitor.post(LIVE, {"instance": host})
            assert answer.status_code == 303, answer.text
            assert "middle" in titles(visitor.page(LIVE))
