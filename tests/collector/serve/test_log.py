from __future__ import annotations

import gzip
import hashlib
import json

import httpx
import pytest

from tests.faults.stacks import profile_of
from tests.server import Server, bearer, fingerprint

pytestmark = pytest.mark.any_store


def test_every_request_is_one_line_of_json(server: Server) -> None:
    profile = profile_of("a")
    server.submit(profile)
    etag = server.merge().headers["ETag"].strip('"')
    server.submit(b"hello")
    server.client.get("/nowhere?secret=1")
    server.merge(key="wrong")
    server.stop()
    lines = server.events("request")
    expected = [
        {
            "method": "POST",
            "path": "/v1/submit",
            "status": 204,
            "key": fingerprint(Server.submit_key),
        }
        | {"bytes": len(profile), "profile": hashlib.sha256(gzip.decompress(profile)).hexdigest()},
        {"method": "GET", "path": "/v1/merge", "status": 200, "key": fingerprint(Server.merge_key)}
        | {"profile": etag},
        {"method": "POST", "path": "/v1/submit", "status": 400, "bytes": 5}
        | {"key": fingerprint(Server.submit_key)},
        {"method": "GET", "path": "/nowhere", "status": 404},
        {"method": "GET", "path": "/v1/merge", "status": 403},
    ]
    always = {"event", "level", "timestamp", "ms"}
    assert [{name: line[name] for name in line.keys() - always} for line in lines] == expected
    assert all(line["ms"] >= 0 and line["level"] == "info" for line in lines)
    assert not server.events("not JSON")


@pytest.mark.folder
def test_no_key_is_ever_logged(server: Server) -> None:
    server.submit(profile_of("a"))
    server.submit(profile_of("a"), "a-wrong-key")
    server.merge()
    for name in ("blobs", "merged", "incoming"):
        path = server.data / name
        path.rename(path.with_name(f"{path.name} moved"))
    assert server.merge().status_code in {404, 500}
    assert server.submit(profile_of("b")).status_code == 500
    server.stop()
    log = json.dumps(server.log)
    assert fingerprint(Server.submit_key) in log
    for key in (Server.submit_key, Server.merge_key, "a-wrong-key"):
        assert key not in log


def test_an_unexpected_error_is_a_problem_for_the_client_and_a_trace_in_the_log(server: Server) -> None:
    server.submit(profile_of("a"))
    with server.catalog() as catalog:
        catalog.exec_driver_sql("UPDATE blobs SET digest = 'not hex'")
    answer = server.merge()
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "Traceback" not in answer.text
    assert "ValueError" in server.wait_for_log("unexpected error")["exception"]
    assert server.wait_for_log("request", 2)["status"] == 500


def test_requests_are_answered_when_nobody_reads_the_log_any_more(stopped: Server) -> None:
    command = stopped.launcher.start(["serve"], stopped.variables)
    try:
        assert command.stderr is not None
        line: dict[str, str] = {}
        while line.get("event") != "listening":
            line = json.loads(command.stderr.readline())
        command.stderr.close()
        with httpx.Client(
            base_url=f"http://{line['address']}",
            headers=bearer(Server.submit_key),
            timeout=120,
            verify=False,  # noqa: S501 - plain HTTP
        ) as client:
            for name in "abc":
                assert client.post("/v1/submit", content=profile_of(name)).status_code == 204
    finally:
        command.kill()
        command.wait()


def test_the_level_is_a_setting(server: Server) -> None:
    server.stop()
    server.environment["PGOF_LOG_LEVEL"] = "error"
    finished = server.run("reindex")
    assert finished.returncode == 0
    assert not finished.stderr
