"""The agent's images, built and run: the agent as an ordinary user, the profiler as the DaemonSet does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.busy import NAME, build, needs_gcc, running
from tests.agent.scrape.scraping import wait_until
from tests.agent.scrape.target_server import target_server
from tests.agent.serving import parsed
from tests.image.builder import Builder
from tests.image.image import ROOT, USER, Image
from tests.server import Server

pytestmark = pytest.mark.exhaustive
POD = yaml.safe_load((ROOT / "deploy/kubernetes/profiler/daemonset.yaml").read_text())["spec"]["template"][
    "spec"
]
(CONTAINER,) = POD["containers"]


@pytest.fixture(scope="module")
def agent(builder: Builder) -> Iterator[Image]:
    with builder.built("agent/Dockerfile") as image:
        yield image


@pytest.fixture(scope="module")
def sampling(builder: Builder) -> Iterator[Image]:
    """Return the profiler's image. Building it takes a minute: bpftrace and bcc need LLVM."""
    with builder.built("agent/Dockerfile", "profiler") as image:
        yield image


class Profiler:
    """The profiler's image as the DaemonSet runs it, with this machine as the node; `home` has volumes."""

    def __init__(self, image: Image, home: Path) -> None:
        self._image, self._home = image, home
        for volume in POD["volumes"]:
            (home / volume["name"]).mkdir(exist_ok=True)

    def command(self, *command: str, more: tuple[str, ...] = ()) -> list[str]:
        """Return a command line in the container, with capabilities besides the DaemonSet's."""
        sources = {volume["name"]: self._source(volume) for volume in POD["volumes"]}
        mounts = [
            f"{sources[mount['name']]}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"
            for mount in CONTAINER["volumeMounts"]
        ]
        granted = [*CONTAINER["securityContext"]["capabilities"]["add"], *more]
        bounding = ",".join(["-all", *(f"+{name.lower()}" for name in granted)])
        rights = (f"--bounding-set={bounding}", "--inh-caps=-all", "--no-new-privs")
        return self._image.command(mounts, {}, *command, rights=rights, sees_all=POD["hostPID"])

    def run(self, *command: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run a command in the container to its end."""
        whole = self.command(*command, more=more)
        return subprocess.run(whole, capture_output=True, text=True, timeout=300, check=False)

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the DaemonSet's command within the block, with more arguments."""
        command = self.command(*CONTAINER["command"], *CONTAINER["args"], *arguments)
        with subprocess.Popen(command) as process:
            try:
                yield process
            finally:
                process.terminate()

    def _source(self, volume: dict[str, Any]) -> str:
        return str(volume["hostPath"]["path"] if "hostPath" in volume else self._home / volume["name"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def profiler(sampling: Image, tmp_path: Path) -> Profiler:
    return Profiler(sampling, tmp_path)


def test_the_agent_scrapes_as_an_ordinary_user(agent: Image, server: Server, tmp_path: Path) -> None:
    """It runs as in the manifests of the scraper, except for the source of its targets."""
    tmp_path.chmod(0o755)
    (tmp_path / "submit_key").write_text(f"{server.submit_key}\n")
    spool = tmp_path / "spool"
    spool.mkdir()
    os.chown(spool, USER, USER)
    with target_server() as targets:
        target = json.dumps(targets.target("good"))
        (tmp_path / "targets.toml").write_text(f'[[target]]\nservice = "shop"\nurl = {target}\n')
        told = [
            "--once",
            "--json",
            f"--url={server.base_url}",
            "--key-file=/secrets/submit_key",
            "--seconds=1",
        ]
        scrape = ["scrape", "--targets=/secrets/targets.toml", "--spool=/spool/profiles", *told]
        mounts = [f"{tmp_path}:/secrets:ro", f"{spool}:/spool"]
        command = agent.command(mounts, {}, *agent.config["Entrypoint"], *scrape)
        finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert json.loads(finished.stdout)["sent"] == 1
    assert server.merge(query={"service": "shop"}).status_code == 200
    assert agent.config["User"] == str(USER)


def test_the_agent_has_what_scraping_kubernetes_needs(agent: Image) -> None:
    finished = subprocess.run(
        agent.command([], {}, "python", "-c", "import lightkube"), capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    shown = subprocess.run(
        agent.command([], {}, *agent.config["Entrypoint"], *agent.config["Cmd"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stdout.startswith("usage: pgo-agent")


def works(profiler: Profiler, *more: str) -> set[str]:
    """Return the parts that work in the container, by `pgo-agent doctor`."""
    finished = profiler.run("pgo-agent", "doctor", "--json", more=more)
    return {finding["part"] for finding in json.loads(finished.stdout)["findings"] if finding["works"]}


def test_with_the_rights_of_the_daemon_set_bcc_and_perf_work(profiler: Profiler) -> None:
    """bpftrace needs one more capability, which gives nearly all rights of root."""
    given = works(profiler)
    assert given >= {"bcc", "perf", "symbols", "serve"}
    assert "bpftrace" not in given
    assert "bpftrace" in works(profiler, "SYS_ADMIN")


def functions_in(merge: bytes) -> tuple[set[str], set[str]]:
    """Return the names of functions in a profile: those of the kernel, and all others."""
    profile = parsed(merge)
    texts = [text.decode() for text in profile.string_table]
    names = {of.id: texts[of.name] for of in profile.function}
    kernel = {of.id for of in profile.mapping if texts[of.filename] == "[kernel.kallsyms]"}
    found: tuple[set[str], set[str]] = set(), set()
    for location in profile.location:
        found[location.mapping_id not in kernel].update(names[line.function_id] for line in location.line)
    return found


@needs_gcc
def test_what_runs_on_the_node_arrives_with_its_names(
    profiler: Profiler, server: Server, tmp_path: Path
) -> None:
    """The program's files aren't in the image. The profiler takes port 3080 of this machine."""
    (tmp_path / "submit-key" / "submit_key").write_text(f"{server.submit_key}\n")
    options = ("--url", server.base_url, "--executable", NAME, "--service", "busy", "--every", "3")
    check = CONTAINER["livenessProbe"]["exec"]["command"]
    assert profiler.run(*check).returncode != 0

    def has_arrived() -> bool:
        """Return whether the profiles of all rounds so far have the functions."""
        merge = server.merge(query={"service": "busy"})
        kernel, others = functions_in(merge.content) if merge.status_code == 200 else (set(), set())
        return bool(kernel) and {"main", "spin", "middle", "inner"} <= others

    with running(build(tmp_path)), profiler.serving(*options, "--duration", "1") as serving:
        wait_until(has_arrived)
        assert profiler.run(*check).returncode == 0
        capabilities = Path(f"/proc/{serving.pid}/status").read_text()
    assert int(capabilities.partition("CapBnd:\t")[2][:16], 16).bit_count() == 4


def test_the_health_check_of_the_image_is_that_of_the_daemon_set(sampling: Image) -> None:
    kind, *check = sampling.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    assert check == CONTAINER["livenessProbe"]["exec"]["command"]
    assert sampling.config["Cmd"] == ["serve"]
