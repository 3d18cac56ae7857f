"""The GitHub Action and the GitLab job: their commands, run as CI runs them, with a real collector."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.forge import TOKEN, run_git, serving
from tests.deploy.manifests import read_yaml
from tests.interop.conftest import PROFILE
from tests.server import Server

DEPLOY = Path(__file__).parents[2] / "deploy"
OPENING: dict[str, Any] = read_yaml((DEPLOY / "github-pull-request" / "action.yml").read_text())
OPENING_JOB: dict[str, Any] = read_yaml((DEPLOY / "gitlab" / "pgo-pull-request.yml").read_text())
ACTION: dict[str, Any] = read_yaml((DEPLOY / "github-action" / "action.yml").read_text())
TEMPLATE: dict[str, Any] = read_yaml((DEPLOY / "gitlab" / "pgo-fetch.yml").read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server:
        server.submit(PROFILE.read_bytes())
        yield server


def run_action(
    folder: Path, action: dict[str, Any] = ACTION, environ: Mapping[str, str] | None = None, **inputs: str
) -> tuple[int, str]:
    """Run an action; return the step's exit status and its outputs."""
    (step,) = action["runs"]["steps"]
    values = {name: about.get("default") for name, about in action["inputs"].items()} | inputs
    environment = dict(environ or {})
    for variable, expression in step["env"].items():
        name = expression.removeprefix("${{ inputs.").removesuffix(" }}")
        environment[variable] = values[name]
    output = folder.parent / f"{folder.name}.output"
    output.touch()
    environment |= {"GITHUB_OUTPUT": str(output), "GITHUB_ACTION_PATH": str(DEPLOY / "github-action")}
    # As GitHub runs a step whose shell is bash.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    finished = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, timeout=120, check=False
    )
    return finished.returncode, output.read_text().strip()


def test_the_action_fetches(server: Server, tmp_path: Path) -> None:
    url = f"{server.base_url}/v1/release"
    assert run_action(tmp_path, url=url, key=server.merge_key) == (0, "fetched=true")
    assert (tmp_path / "default.pgo").read_bytes() == server.release().content


@pytest.mark.parametrize(("needed", "outcome"), [("false", (0, "fetched=false")), ("true", (4, ""))])
def test_the_action_says_that_there_is_none_yet(
    server: Server, tmp_path: Path, needed: str, outcome: tuple[int, str]
) -> None:
    url = f"{server.base_url}/v1/release?service=none"
    assert run_action(tmp_path, url=url, key=server.merge_key, needed=needed) == outcome


def test_the_action_fails_with_a_wrong_key(server: Server, tmp_path: Path) -> None:
    assert run_action(tmp_path, url=f"{server.base_url}/v1/release", key="wrong") == (3, "")


def test_the_job_fetches(server: Server, tmp_path: Path) -> None:
    job = TEMPLATE["pgo-fetch"]
    variables = TEMPLATE["variables"] | {
        "PGO_URL": f"{server.base_url}/v1/release",
        "PGO_KEY": server.merge_key,
        "PGO_FETCH": str(DEPLOY / "pipeline" / "pgo_fetch.py"),
    }
    for _ in range(2):
        script = "\n".join(job["script"])
        subprocess.run(
            ["bash", "-e", "-c", script], cwd=tmp_path, env=os.environ | variables, timeout=120, check=True
        )
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.replace("$PGO_FILE", variables["PGO_FILE"]) for path in job["cache"]["paths"]}
    assert job["allow_failure"]["exit_codes"] == 4


def test_the_action_opens_a_pull_request(server: Server, tmp_path: Path) -> None:
    with serving("github", tmp_path) as forge:
        run_git(tmp_path, "clone", "--quiet", str(forge.repository), "clone")
        clone, url = tmp_path / "clone", f"{server.base_url}/v1/release?format=go"
        run_git(clone, "remote", "set-url", "origin", forge.git_url)
        key, token = server.merge_key, TOKEN
        for base in ("", "main"):
            inputs = {"url": url, "key": key, "token": token, "base": base}
            assert run_action(clone, OPENING, forge.environment, **inputs) == (0, "")
        assert len(forge.requests) == 1
        inputs["url"] = f"{server.base_url}/v1/release?service=none"
        assert run_action(clone, OPENING, forge.environment, **inputs) == (0, "")
        assert run_action(clone, OPENING, forge.environment, **inputs | {"key": "wrong"}) == (3, "")


def test_the_job_opens_a_merge_request(server: Server, tmp_path: Path) -> None:
    job = OPENING_JOB["pgo-pull-request"]
    with serving("gitlab", tmp_path) as forge:
        run_git(tmp_path, "clone", "--quiet", str(forge.repository), "clone")
        run_git(tmp_path / "clone", "remote", "set-url", "origin", forge.git_url)
        variables = OPENING_JOB["variables"] | {
            "PGO_URL": f"{server.base_url}/v1/release?format=go",
            "PGO_KEY": server.merge_key,
            "PGO_FORGE_TOKEN": TOKEN,
            "PGO_PULL_REQUEST": str(DEPLOY / "pipeline" / "pgo_pull_request.py"),
        }
        subprocess.run(
            ["bash", "-e", "-c", "\n".join(job["script"])],
            cwd=tmp_path / "clone",
            env=os.environ | forge.environment | variables,
            timeout=120,
            check=True,
        )
        assert [each["head"] for each in forge.requests] == ["pgo/default.pgo"]
    assert job["allow_failure"]["exit_codes"] == 4
