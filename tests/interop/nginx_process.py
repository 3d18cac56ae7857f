"""A real nginx as reverse proxy, on a loopback port, with the configuration that docs/operations.md gives."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.interop.listening import free_port, wait_until_answers

OPERATIONS: Final = Path(__file__).parents[2] / "docs" / "operations.md"

# A line for each request: its trace, if it has one, and how many seconds it took.
LOG: Final = "requests.log"

# Only what lets it run from a folder of the test's own, in the foreground, as whoever runs the test.
AROUND: Final = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
    log_format traced '$upstream_http_pgo_trace $request_time';
    access_log {folder}/{log} traced;
    gzip on;
    gzip_types *;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {upstreams}
    server {{
        listen 127.0.0.1:{port}{tls};
        {location}
    }}
}}
"""


def documented_location() -> str:
    """The one nginx block of the operations page."""
    (block,) = re.findall(r"```nginx\n(.*?)```", OPERATIONS.read_text(), flags=re.DOTALL)
    return str(block)


@contextmanager
def running_nginx(
    folder: Path,
    upstream: str,
    *,
    request_buffering: bool,
    also: str = "",
    certificate: Path | None = None,
) -> Iterator[str]:
    """The URL of an nginx before `upstream` (a URL) until the block ends; `also` is more for its location.

    It has TLS if given a file with a certificate and its key.
    """
    location = _changed_location(
        ("proxy_http_version 1.1;", f"proxy_http_version 1.1; {also}"),
        ("proxy_pass http://127.0.0.1:8080;", f"proxy_pass {upstream};"),
        ("proxy_request_buffering off;", f"proxy_request_buffering {'on' if request_buffering else 'off'};"),
    )
    with serving_nginx(folder, location, certificate=certificate) as url:
        yield url


@contextmanager
def balanced_nginx(folder: Path, ports: Sequence[int], seconds: int) -> Iterator[str]:
    """Yield the URL of an nginx that routes each service to one of several collectors.

    It asks the next one if that fails, or hasn't answered after `seconds`, whatever is asked: to submit,
    combine or delete twice has the effect of doing it once. A collector that answers 503 isn't left alone
    afterwards: all of them would be, by what none of them can do now.
    """
    servers = "".join(f"server 127.0.0.1:{port} max_fails=0; " for port in ports)
    again = (
        "proxy_connect_timeout 2s; proxy_next_upstream error timeout http_502 http_503 non_idempotent;"
        f" proxy_next_upstream_tries {len(ports)}; proxy_next_upstream_timeout {2 * seconds}s;"
    )
    location = _changed_location(
        ("proxy_pass http://127.0.0.1:8080;", f"proxy_pass http://collectors; {again}"),
        ("proxy_read_timeout 300s;", f"proxy_read_timeout {seconds}s;"),
        # What nginx has not kept, it can't send to another one.
        ("proxy_request_buffering off;", "proxy_request_buffering on;"),
    )
    folder.mkdir()
    upstreams = f"upstream collectors {{ hash $arg_service consistent; {servers}}}"
    with serving_nginx(folder, location, upstreams=upstreams) as url:
        yield url


def _changed_location(*changes: tuple[str, str]) -> str:
    """Return the documented location with some of its directives replaced."""
    location = documented_location()
    for directive, changed in changes:
        assert location.count(directive) == 1, f"docs/operations.md hasn't one {directive}"
        location = location.replace(directive, changed)
    return location


@contextmanager
def serving_nginx(
    folder: Path, location: str, *, upstreams: str = "", certificate: Path | None = None
) -> Iterator[str]:
    """Yield the URL of an nginx with one `location`, and with the blocks `upstreams` beside its server."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed")
    port = free_port()
    configuration = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    tls = f" ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate}" if certificate else ""
    configuration.write_text(
        AROUND.format(
            user=user, folder=folder, log=LOG, port=port, location=location, tls=tls, upstreams=upstreams
        )
    )
    log = folder / "nginx.log"
    process = subprocess.Popen([program, "-p", folder, "-e", log, "-c", configuration])
    try:
        wait_until_answers(port, process, log)
        yield f"http{'s' if certificate else ''}://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
