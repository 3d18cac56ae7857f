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

_ROOT: Final = Path(__file__).parents[2]
OPERATIONS: Final = _ROOT / "docs" / "operations.md"
# What nginx has for several collectors.
SHARED: Final = _ROOT / "deploy" / "compose" / "shared"

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


def documented_locations() -> tuple[str, str]:
    """The two nginx blocks of the operations page: of a host, and below a path of one."""
    whole, below = re.findall(r"```nginx\n(.*?)```", OPERATIONS.read_text(), flags=re.DOTALL)
    return whole, below


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
def nginx_below_path(folder: Path, upstream: str, *, is_removed: bool, also: str = "") -> Iterator[str]:
    """Yield the URL of the path /pgo of an nginx, which removes the path from requests or doesn't.

    `also` is more for its location.
    """
    whole, below = documented_locations()
    passed = "proxy_pass http://127.0.0.1:8080;"
    for block, directive in (whole, passed), (below, passed), (below, "# …"):
        assert block.count(directive) == 1, f"docs/operations.md hasn't one {directive}"
    rest = whole.partition(passed)[2].rpartition("}")[0]
    below = below.replace(passed, f"proxy_pass {upstream}{'/' if is_removed else ''};")
    with serving_nginx(folder, below.replace("# …", rest + also)) as url:
        yield f"{url}/pgo"


@contextmanager
def balanced_nginx(folder: Path, ports: Sequence[int], seconds: int) -> Iterator[str]:
    """Yield the URL of an nginx that leads a service to one of several collectors, as in deploy/compose.

    It asks the next one if that can't be reached, or hasn't answered after `seconds`, whatever is asked: to
    submit, combine or delete twice has the effect of doing it once.
    """
    of_address: dict[str, int | None] = {}

    def server(line: re.Match[str]) -> str:
        more = of_address.setdefault(
            line[1], ports[len(of_address)] if len(of_address) < len(ports) else None
        )
        return "" if more is None else f"server 127.0.0.1:{more} {line[2]}"

    upstreams = re.sub(r"server (\S+):8080 ([^;]*;)", server, (SHARED / "collectors.conf").read_text())
    assert len(of_address) >= len(ports), f"{SHARED} has {len(of_address)} collectors"
    location = _changed_location(
        ("proxy_pass http://127.0.0.1:8080;", "proxy_pass http://collectors;"),
        ("proxy_read_timeout 300s;", ""),
        # What nginx has not kept, it can't send to another one.
        ("proxy_request_buffering off;", "proxy_request_buffering on;"),
    )
    folder.mkdir()
    elsewhere, pages, _ = (SHARED / "elsewhere.conf").read_text().partition("location /ui/")
    assert pages, "the pages, which have no part in this, have no location of their own"
    limits = f"proxy_connect_timeout 2s; proxy_read_timeout {seconds}s;\n"
    # In compose, a request waits there and is tried again; here its client gets the 502.
    limits += "location @wait { return 502; }\n"
    with serving_nginx(folder, limits + elsewhere + location, upstreams=upstreams) as url:
        yield url


def _changed_location(*changes: tuple[str, str]) -> str:
    """Return the documented location with some of its directives replaced."""
    location, _ = documented_locations()
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
