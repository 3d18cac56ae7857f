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
    """Run an action; return the step's exit status and its outputs. `printed_by` has what it prints."""
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
    printed_by(folder).write_bytes(finished.stdout)
    return finished.returncode, output.read_text().strip()


def printed_by(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.printed"


def run_job(folder: Path, template: dict[str, Any], name: str, **variables: str) -> tuple[int, str]:
    """Run a job of GitLab's; return its exit status and what it prints."""
    finished = subprocess.run(
        ["bash", "-e", "-c", "\n".join(template[name]["script"])],
        cwd=folder,
        env=os.environ | template["variables"] | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
        text=True,
    )
    return finished.returncode, finished.stdout


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
    warned = "::warning title=No profile to build with::pgo_fetch: 404 no stored profile matches"
    assert (warned in printed_by(tmp_path).read_text()) == (needed == "false")


@pytest.mark.parametrize(("action", "code"), [(ACTION, 3), (OPENING, 2)], ids=["fetch", "pull request"])
def test_an_action_fails_where_the_path_is_mistyped(
    server: Server, tmp_path: Path, action: dict[str, Any], code: int
) -> None:
    """The script of the pull request takes the URL of a release or a merge only."""
    with serving("github", tmp_path) as forge:
        run_git(tmp_path, "clone", "--quiet", str(forge.repository), "clone")
        clone, inputs = tmp_path / "clone", {"key": server.merge_key, "token": TOKEN}
        run_git(clone, "remote", "set-url", "origin", forge.git_url)
        url = f"{server.base_url}/v1/relase?format=go"
        assert run_action(clone, action, forge.environment, url=url, **inputs) == (code, "")
        assert "::warning" not in printed_by(clone).read_text()


@pytest.mark.parametrize(("needed", "code"), [("false", 4), ("true", 1)])
def test_the_job_warns_or_fails_where_there_is_none(
    server: Server, tmp_path: Path, needed: str, code: int
) -> None:
    """GitLab lets status 4 be a warning of the pipeline."""
    variables = {
        "PGO_URL": f"{server.base_url}/v1/release?service=none&format=go",
        "PGO_KEY": server.merge_key,
        "PGO_NEEDED": needed,
        "PGO_FETCH": str(DEPLOY / "pipeline" / "pgo_fetch.py"),
    }
    exit_code, printed = run_job(tmp_path, TEMPLATE, "pgo-fetch", **variables)
    assert exit_code == code
    assert "WARNING: no profile to build with" in printed
    assert "404 no stored profile matches" in printed


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
        assert (
            "::warning title=No profile to build with::pgo_pull_request: 404" in printed_by(clone).read_text()
        )
        assert run_action(clone, OPENING, forge.environment, **inputs | {"needed": "true"}) == (4, "")
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
