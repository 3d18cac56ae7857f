"""Packages of Debian, from the distribution that apt is configured for; none of them is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

# Where packages are unpacked, once for all programs.
UNPACKED = Path(__file__).parents[2] / ".dev" / "gains" / "packages"
GOPATH = UNPACKED / "usr" / "share" / "gocode"
_SOURCES = UNPACKED.parent / "sources"
_GO_SOURCES = re.compile(r"^Inst (golang-\S+-dev) ", re.MULTILINE)
_BUILT_FROM = re.compile(r"^ +(golang-\S+-dev)\b", re.MULTILINE)
_TARGETS = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
_DEBIANS = ("Created-By: Packages", "Origin: Debian", "Label: Debian")


# Packages of programs that have other names.
_PACKAGES = {
    "dpkg-source": "dpkg-dev",
    "llvm-bolt-19": "bolt-19",
    "llvm-profdata": "llvm",
    "perf": "linux-perf",
    "promtool": "prometheus",
    "strip": "binutils",
}


@dataclass(frozen=True)
class SourcePackage:
    """A source package of a Go program, which belongs to `path` in GOPATH.

    It is unpacked with the Go sources that it is built from, but for those whose names match `unneeded`, and
    with those in `besides`, which would come with them. `prepare` then gets the folder of its sources, and
    makes of them what is built.
    """

    name: str
    path: str
    unneeded: str
    prepare: Callable[[Path], object]
    besides: tuple[str, ...] = ()

    @property
    def gopath(self) -> Path:
        """Return the folder that GOPATH has for it."""
        return _SOURCES / self.name

    @property
    def folder(self) -> Path:
        """Return the folder of its sources."""
        return self.gopath / "src" / self.path

    def unpack(self) -> None:
        """Get it and what it needs, once.

        Raises FileNotFoundError if apt knows no packages of Debian, or without dpkg-dev.
        """
        if not self.folder.exists():
            needed("dpkg-source")
            with tempfile.TemporaryDirectory() as folder:
                tree = sources_of(self.name, Path(folder))
                asked = _BUILT_FROM.findall((tree / "debian" / "control").read_text())
                wanted = [package for package in asked if not re.search(self.unneeded, package)]
                unpack_go({*wanted, *self.besides})
                self.prepare(tree)
                self.folder.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(tree, self.folder)


def needed(*programs: str) -> None:
    """Raise FileNotFoundError, which says what to install, if a program isn't there."""
    if missing := [program for program in programs if shutil.which(program) is None]:
        packages = " ".join(sorted({_PACKAGES.get(program, program) for program in missing}))
        raise FileNotFoundError(f"there is no {', '.join(missing)}: apt install {packages}")


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


def unpack_go(packages: Iterable[str]) -> None:
    """Unpack packages with Go sources, and those that these depend on, so that GOPATH has them.

    Raises FileNotFoundError if apt doesn't know one of them.
    """
    # As on a machine where nothing is installed, or what is would be missing from the list.
    simulated = ["apt-get", "--simulate", "--option=Dir::State::status=/dev/null", "--no-install-recommends"]
    missing = [package for package in packages if not _mark(package).exists()]
    if missing:
        try:
            listed = _said([*simulated, "install", *missing])
        except subprocess.CalledProcessError as failed:
            raise FileNotFoundError(f"apt knows no {missing}: call apt-get update") from failed
        unpack({*_GO_SOURCES.findall(listed), *missing})


def unpack(packages: Iterable[str]) -> None:
    """Unpack packages, without what they depend on, below UNPACKED."""
    (UNPACKED / "marks").mkdir(parents=True, exist_ok=True)
    missing = sorted(package for package in packages if not _mark(package).exists())
    with tempfile.TemporaryDirectory() as folder:
        # Not as the user _apt, who may not write here.
        download = ["apt-get", "--quiet", "--quiet", "--option=APT::Sandbox::User=root", "download"]
        if missing:
            subprocess.run([*download, *missing], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for archive in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", archive, UNPACKED], check=True)
    for package in missing:
        _mark(package).touch()


def _mark(package: str) -> Path:
    return UNPACKED / "marks" / package
