"""The pipelines that publish a release: their form, their commands, and what they would upload."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import read_yaml
from tests.release.conftest import ROOT, Release, run
from tools.dist import CannotBuild, build

GITHUB, GITLAB = ROOT / ".github" / "workflows" / "release.yml", ROOT / ".gitlab-ci.yml"
UV = Path(sys.executable).with_name("uv")


@pytest.mark.parametrize(
    ("schema", "file"), [("vendor.github-workflows", GITHUB), ("vendor.gitlab-ci", GITLAB)]
)
def test_a_pipeline_has_the_form_that_its_forge_reads(schema: str, file: Path) -> None:
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, file, cwd=ROOT)


def commands() -> dict[str, list[list[str]]]:
    """Return the commands of the jobs `build` and `publish`, first GitHub's."""
    jobs: dict[str, Any] = read_yaml(GITHUB.read_text())["jobs"]
    others: dict[str, Any] = read_yaml(GITLAB.read_text())
    return {
        name: [[step["run"] for step in jobs[name]["steps"] if "run" in step], others[name]["script"]]
        for name in ("test", "build", "publish")
    }


def test_both_forges_run_the_same_commands() -> None:
    for name, wanted in (
        ("test", r"^make test$"),
        ("build", r"^(make setup|\.venv/bin/uv |make dist )"),
        ("publish", r"^(python3 -m venv|\.uv/bin/uv )"),
    ):
        of_forges = [[re.sub(r"\$\w+", "TAG", line) for line in lines] for lines in commands()[name]]
        first, second = ([line for line in lines if re.search(wanted, line)] for lines in of_forges)
        assert first
        assert first == second


def test_another_tag_than_the_versions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match=r"the tag is v0\.9\.9, and the version 1\."):
        build(tmp_path / "dist", [], "v0.9.9")


@pytest.mark.exhaustive
@pytest.mark.system("npm")
def test_the_files_of_a_release_are_such_as_an_index_takes(release: Release) -> None:
    (line,) = [line for line in commands()["publish"][0] if "uv publish" in line]
    dry = line.replace(".uv/bin/uv", str(UV)).replace("--trusted-publishing always", "--dry-run --token t")
    shown = run(
        "bash", "-ec", f"{dry} 2>&1", cwd=release.files.parent, env={"UV_PUBLISH_URL": "http://127.0.0.1:9/"}
    )
    assert shown.count("Checking p") == len([*release.files.glob("*.whl"), *release.files.glob("*.tar.gz")])
