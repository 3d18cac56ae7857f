"""Source packages of Debian, from the distribution that apt is configured for."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TARGETS = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
_DEBIANS = ("Created-By: Packages", "Origin: Debian", "Label: Debian")


def sources_of(package: str, folder: Path) -> Path:
    """Unpack a source package in a folder, and return the folder of its sources.

    Raises FileNotFoundError if apt knows no packages of Debian.
    """
    apt = folder / "apt"
    for part in ("lists/partial", "cache/archives/partial", "parts"):
        (apt / part).mkdir(parents=True)
    # Not the security archive, whose sources many mirrors lack.
    described = ["apt-get", "indextargets", "--format", _TARGETS, *_DEBIANS]
    lines = set[str]()
    for target in _said(described).splitlines():
        uri, release, component = target.split("|")
        lines.add(f"deb-src {uri} {release} {component}\n")
    if not lines:
        raise FileNotFoundError("apt knows no sources of Debian: call apt-get update")
    (apt / "sources.list").write_text("".join(sorted(lines)))
    options = (
        f"Dir::Etc::SourceList={apt}/sources.list",
        f"Dir::Etc::SourceParts={apt}/parts",
        f"Dir::State::Lists={apt}/lists",
        f"Dir::Cache={apt}/cache",
        "APT::Sandbox::User=root",
    )
    get = ["apt-get", "--quiet", "--quiet", *(f"--option={option}" for option in options)]
    for command in (["update"], ["source", package]):
        subprocess.run([*get, *command], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (tree,) = (path.parent for path in folder.glob("*/debian"))
    return tree


def _said(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
