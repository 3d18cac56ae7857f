"""The PostgreSQL tutorial as a reader meets it: its commands, pasted into a shell, with a real PostgreSQL."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pgo_agent.cli
import pytest
from pgo_agent.backends import Perf

from tests.agent.sampling import working
from tests.interop.listening import free_port
from tests.interop.postgres_cluster import MISSING, only_postgres
from tests.interop.shell import pasted
from tests.oracle.oracle import go_environment
from tests.server import Server

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial-postgres.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
ROOT = Path("/tmp/tutorial-postgres")  # noqa: S108 - as the page has it

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.system("root", "curl"),
]
Paste = Callable[[str], str]


def block(beginning: str) -> str:
    """The commands of the one block that begins so."""
    (found,) = (block for block in BLOCKS if block.startswith(beginning))
    return str(found)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def paste(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Paste]:
    """Runs commands where a reader would, and gives what they print; for a shorter time, and fewer rows."""
    working(Perf())
    folder = tmp_path_factory.mktemp("clone")
    (folder / "profiles").mkdir()
    for keys in (server.submit_keys, server.merge_keys):
        shutil.copy(keys, folder / "profiles")
    (folder / ".venv").symlink_to(Path(sys.prefix))
    home, port = tempfile.mkdtemp(prefix="tutorial-"), free_port()
    Path(home).chmod(0o755)  # a reader's /tmp is open to the user `postgres`
    instead = {
        "http://127.0.0.1:8080": server.base_url,
        str(ROOT): f"{home}/postgres",
        "PGPORT=5499": f"PGPORT={port}",
        "-s 10 ": "-s 1 ",
        "-T 20 ": "-T 8 ",
        "--duration 10": "--duration 4",
        # Which twenty come first depends on the machine.
        "-nodecount=20": "-nodecount=1000",
    }

    def run(commands: str) -> str:
        script = block("export PATH=") + commands
        for there, here in instead.items():
            script = script.replace(there, here)
        return pasted(script, folder, go_environment())

    with only_postgres():
        try:
            run(block("install -d"))
            yield run
        finally:
            run(block("runuser"))
            assert [*Path(home).iterdir()] == []
            shutil.rmtree(home)


@pytest.mark.exhaustive
def test_a_profile_says_what_the_page_says(paste: Paste) -> None:
    said = paste(block("pgbench"))
    assert '"profiler": "perf"' in said
    assert {"PostgresMain", "PortalRun"} <= {*re.findall(r"\w+$", said, re.MULTILINE)}, said


@pytest.mark.exhaustive
def test_the_difference_is_what_the_page_says(paste: Paste, server: Server) -> None:
    """Takes over 20 s: a profile is taken of each of two loads."""
    assert paste(block("for protocol")).count("tps = ") == 2
    assert len(server.blobs()) == 2
    functions, difference = block("collector() {"), block("collector /v1/diff")
    assert '"service":"postgres","types":[{"type":"cpu","profiles":2,' in paste(functions)
    difference = paste(functions.partition("}\n")[0] + "}\n" + difference)
    rows = re.findall(r"^ *([\d.]+)% +([\d.]+)% +(\w+)$", difference, re.MULTILINE)
    planning = [(float(base), float(now)) for base, now, name in rows if "plan" in name]
    assert planning, difference
    assert all(base > 2 * now for base, now in planning), difference


def test_the_agent_takes_the_command_that_goes_on() -> None:
    options = pgo_agent.cli.parser().parse_args(shlex.split(block("pgo-agent serve").replace("\\\n", ""))[1:])
    assert (options.service, options.every) == ("postgres", 3600)
