"""The script that pipelines fetch a profile with: beside real collectors, and beside what is no good."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from pprof_merge import decode

from tests.deploy.pipeline_scripts import run_script
from tests.interop.curl import Client
from tests.loopback import QuietHandler, running
from tests.server import Server

FETCH = Path(__file__).parents[2] / "deploy" / "pipeline" / "pgo_fetch.py"
PROFILE = (Path(__file__).parents[1] / "testdata" / "profiles" / "apisvc-v1-s1-002.pb.gz").read_bytes()


def fetch(
    url: str, file: Path, *options: str, key: str = Server.merge_key
) -> subprocess.CompletedProcess[str]:
    return run_script("pgo_fetch", [*options, url, file], os.environ | {"PGO_KEY": key})


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that gives these answers in turn, the last one again and again; and the requests' headers."""
    left, seen = list(answers), list[dict[str, str]]()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            answer = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header(
                "Content-Length", str(len(answer.body) if answer.length is None else answer.length)
            )
            self.end_headers()
            self.wfile.write(answer.body)

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/v1/merge", seen


@pytest.mark.system("curl")
def test_it_is_what_curl_gets(client: Client, url: str, profile: bytes, tmp_path: Path) -> None:
    client.submit(profile)
    file = tmp_path / "fetched.pgo"
    finished = fetch(f"{url}/v1/merge", file)
    assert (finished.returncode, finished.stdout) == (0, ""), finished.stderr
    assert decode(file.read_bytes()).digest == decode(client.merge().body).digest


@pytest.mark.parametrize("form", ["go", "folded"])
def test_other_formats_are_taken(server: Server, tmp_path: Path, form: str) -> None:
    server.submit(PROFILE)
    file = tmp_path / "fetched"
    assert fetch(f"{server.base_url}/v1/merge?format={form}", file).returncode == 0
    assert file.stat().st_size


def test_what_is_the_same_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "default.pgo"
    with Server(tmp_path / "server") as server:
        url = f"{server.base_url}/v1/merge"
        server.submit(PROFILE)
        assert fetch(url, file).returncode == 0
        before = file.stat()
        finished = fetch(url, file)
        assert finished.returncode == 0
        assert "is up to date" in finished.stderr
        assert server.wait_for_log("request", 3)["status"] == 304
        # Without what was noted of it, too.
        (tmp_path / ".default.pgo.fetched").unlink()
        assert fetch(url, file).returncode == 0
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_somebody_has_changed_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "default.pgo"
    server.submit(PROFILE)
    assert fetch(f"{server.base_url}/v1/merge", file).returncode == 0
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    assert fetch(f"{server.base_url}/v1/merge", file).returncode == 0
    assert file.read_bytes() == whole


def test_a_fleet_without_a_profile_yet(tmp_path: Path) -> None:
    with Server(tmp_path / "server") as server:
        finished = fetch(f"{server.base_url}/v1/release", tmp_path / "default.pgo")
    assert finished.returncode == 4
    assert not (tmp_path / "default.pgo").exists()


@pytest.mark.parametrize(
    ("parameters", "key"), [("", "another"), ("", ""), ("?format=none", Server.merge_key)]
)
def test_a_refusal_is_not_tried_again(server: Server, tmp_path: Path, parameters: str, key: str) -> None:
    (tmp_path / "default.pgo").write_bytes(b"the one before")
    finished = fetch(f"{server.base_url}/v1/merge{parameters}", tmp_path / "default.pgo", key=key)
    assert finished.returncode == 3
    assert "trying again" not in finished.stderr
    assert (tmp_path / "default.pgo").read_bytes() == b"the one before"


def test_a_page_that_is_not_found_is_not_taken_for_a_first_build(tmp_path: Path) -> None:
    with answering(Answer(404, b"<html>Not Found</html>", (("Content-Type", "text/html"),))) as (url, _):
        assert fetch(url, tmp_path / "default.pgo").returncode == 3


@pytest.mark.parametrize(
    "path",
    ["/v1/relase", "/v1/release/", "/v1", "/v1/releases/7/profile", "/v1/release?service=shop&lables=a"],
)
def test_what_is_mistyped_in_a_url_is_not_taken_for_a_first_build(
    server: Server, tmp_path: Path, path: str
) -> None:
    """A first build goes without a profile; one whose URL is wrong would do so for ever."""
    finished = fetch(f"{server.base_url}{path}", tmp_path / "default.pgo")
    assert finished.returncode == 3, finished.stderr
    assert "trying again" not in finished.stderr


@pytest.mark.parametrize("path", ["/v1/release?service=logsumm", "/v1/merge?service=Logsum&format=go"])
def test_a_service_that_is_mistyped_is_told_with_the_name_that_is_like_it(tmp_path: Path, path: str) -> None:
    with Server(tmp_path / "server") as server:
        server.submit(PROFILE, query={"service": "logsum"})
        finished = fetch(f"{server.base_url}{path}", tmp_path / "default.pgo")
    assert finished.returncode == 4
    assert "did you mean 'logsum'?" in finished.stderr


BROKEN = {
    "empty": Answer(200),
    "a page": Answer(200, b"<html>Log in</html>"),
    "half of it": Answer(200, PROFILE[:1000]),
    "fewer bytes than said": Answer(200, PROFILE[:1000], length=len(PROFILE)),
    "no samples": Answer(200, gzip.compress(b"\x32\x00")),
    "not gzipped": Answer(200, gzip.decompress(PROFILE)),
    "gzip of something else": Answer(200, gzip.compress(b"<html>Log in</html>")),
    "an error": Answer(502, b"<html>Bad Gateway</html>"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_good_file_is_never_replaced_by_a_bad_one(tmp_path: Path, answer: Answer) -> None:
    file = tmp_path / "default.pgo"
    file.write_bytes(b"the one before")
    with answering(answer) as (url, seen):
        finished = fetch(url, file, "--tries", "2")
    assert finished.returncode == 1
    assert len(seen) == 2
    assert file.read_bytes() == b"the one before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["default.pgo"]


def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    busy = Answer(503, headers=(("Retry-After", "1"),))
    with answering(busy, BROKEN["half of it"], Answer(200, PROFILE)) as (url, seen):
        finished = fetch(url, tmp_path / "default.pgo")
    assert finished.returncode == 0
    assert len(seen) == 3
    assert "trying again in 1.0 s" in finished.stderr
    assert (tmp_path / "default.pgo").read_bytes() == PROFILE


def test_an_outage_is_survived_for_as_long_as_was_said(tmp_path: Path) -> None:
    file = tmp_path / "default.pgo"
    with answering(Answer(200, PROFILE)) as (url, _):
        assert fetch(url, file).returncode == 0
    assert fetch(url, file, "--tries", "1", "--max-age", "1h").returncode == 0
    for options in ([], ["--max-age", "0s"]):
        finished = fetch(url, file, "--tries", "1", *options)
        assert finished.returncode == 1
        assert "refused" in finished.stderr
    # Of a file that somebody else has put there, nobody knows how old it is.
    file.write_bytes(gzip.compress(gzip.decompress(PROFILE)))
    assert fetch(url, file, "--tries", "1", "--max-age", "1h").returncode == 1


def test_the_key_goes_to_no_other_place(tmp_path: Path) -> None:
    with (
        answering(Answer(200, PROFILE)) as (elsewhere, seen),
        answering(Answer(302, headers=(("Location", elsewhere),))) as (url, seen_first),
    ):
        assert fetch(url, tmp_path / "default.pgo").returncode == 0
    assert seen_first[0]["Authorization"] == f"Bearer {Server.merge_key}"
    assert "Authorization" not in seen[0]


def test_a_key_file(server: Server, tmp_path: Path) -> None:
    server.submit(PROFILE)
    url, file = f"{server.base_url}/v1/merge", tmp_path / "default.pgo"
    assert fetch(url, file, "--key-file", str(server.merge_keys), key="").returncode == 0
    several = tmp_path / "several"
    several.write_text(f"{server.merge_key} name=ci\nanother\n", encoding="utf-8-sig")
    assert fetch(url, file, "--key-file", str(several), key="").returncode == 0
    assert fetch(url, file, "--key-file", str(tmp_path / "none"), key="").returncode == 2


@pytest.mark.parametrize("arguments", [("ftp://host/", "x"), ("http://host/", "x", "--max-age", "soon"), ()])
def test_a_wrong_command_line(arguments: tuple[str, ...]) -> None:
    finished = subprocess.run(
        [sys.executable, FETCH, *arguments], capture_output=True, timeout=120, check=False
    )
    assert finished.returncode == 2
