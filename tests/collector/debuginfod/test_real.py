"""elfutils' debuginfod has the names of stripped programs, in separate debug files and in programs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pprof_merge.binary import Binary, BinaryLimits

from tests.collector.engine.test_binaries import build_id, cpu_profile
from tests.collector.queries.test_queries import asked
from tests.interop.listening import free_port
from tests.merge.binary.program import SOURCE, sampled
from tests.preloads import build_preload
from tests.server import Server

pytestmark = pytest.mark.system("debuginfod", "gcc", "objcopy", "strip")


@contextmanager
def debuginfod(folder: Path, home: Path, *files: str) -> Iterator[str]:
    """Serve what is in a folder; yield the URL once these files, such as `ab12…/debuginfo`, are there."""
    port, log = free_port(), home / "debuginfod.log"
    url = f"http://127.0.0.1:{port}"
    command = ["debuginfod", "-F", "-p", str(port), "-d", str(home / "index.sqlite"), str(folder)]
    preload = build_preload(Path(__file__).with_name("loopback.c"), home)
    environment = os.environ | {"LD_PRELOAD": str(preload)}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while not all(is_there(f"{url}/buildid/{file}") for file in files):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()


def is_there(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.ConnectError:
        return False


def program(path: Path, *flags: str) -> tuple[Path, bytes]:
    """Build a program; return it, and a profile of it once it is stripped, which has no names."""
    source = path.with_suffix(".c")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-Wl,--build-id=sha1", *flags, "-o", path, source], check=True)
    listed = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout
    (body,) = re.findall(r"<work>:\n(.*?)\n\n", listed, re.DOTALL)
    addresses = [int(found, 16) for found in re.findall(r"^ *([0-9a-f]+):", body, re.MULTILINE)]
    samples = sampled(Binary.at(str(path), BinaryLimits()), dict.fromkeys(addresses[:10], 5))
    return path, cpu_profile(samples)


def names(server: Server, service: str) -> set[str]:
    return {row["name"] for row in asked(server, "/v1/top", service=service)["rows"]}


def test_it_names_what_nobody_has_uploaded(tmp_path: Path) -> None:
    folder = tmp_path / "debug"
    folder.mkdir()
    split, of_split = program(tmp_path / "split", "-g")
    debug_file = folder / "split.debug"
    subprocess.run(["objcopy", "--only-keep-debug", split, debug_file], check=True)
    whole, of_whole = program(folder / "whole")  # without debug information, but with symbols
    _, of_other = program(tmp_path / "other", "-DOTHER", "-g", "-O2")
    files = f"{build_id(split)}/debuginfo", f"{build_id(whole)}/executable"
    with debuginfod(folder, tmp_path, *files) as url, Server(tmp_path / "server") as server:
        for service, profile in (("split", of_split), ("whole", of_whole), ("other", of_other)):
            assert server.submit(profile, query={"service": service}).status_code == 204
        assert "work" not in names(server, "split") | names(server, "whole")
        server.environment |= {"PGOF_DEBUGINFOD_URLS": url, "PGOF_METRICS_OPEN": "true"}
        server.restart()
        found = [server.wait_for_log("debug file fetched", count) for count in (1, 2)]
        assert sorted(each["kind"] for each in found) == ["debug", "symbols"]
        assert {each["server"] for each in found} == {url}
        assert names(server, "split") == names(server, "whole") == {"work"}
        assert asked(server, "/v1/unnamed", service="split")["unnamed"] == 0
        assert "work" not in names(server, "other")
        outcome = 'pgo_collector_debuginfod_builds_total{outcome="missing"} 1.0'
        deadline = time.monotonic() + 120
        while outcome not in server.client.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # The names stay without the server.
        del server.environment["PGOF_DEBUGINFOD_URLS"]
        server.restart()
        assert names(server, "split") == {"work"}
