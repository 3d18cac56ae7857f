"""Builds images from their Dockerfiles as anybody would, but for where their base comes from, and for how
much gcc optimizes.

There is no registry in a test: the base is made by debootstrap, and has the short name of the real one, for
which a build looks here first. Builds run with buildah in a chroot.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from tests.image.image import ROOT, Image

_STORAGE = ROOT / ".dev" / "image"
_BASE = "localhost/python:3.11-slim-bookworm"
_CERTIFICATES = Path("/etc/ssl/certs")
_SECONDS = 900


class Builder:
    """buildah with its own storage, where the base stays, and layers until exit; skips if it can't run."""

    def __enter__(self) -> Self:
        for program in ("buildah", "debootstrap", "unshare"):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        if os.geteuid() != 0:
            pytest.skip("only root can mount")
        if not self._run("images", "--quiet", "--filter", f"reference={_BASE}"):
            self._make_base(_STORAGE / "rootfs")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._run("rmi", "--prune")

    @contextmanager
    def built(self, dockerfile: str, target: str = "") -> Iterator[Image]:
        """Build a Dockerfile, or one stage of it, and return the image."""
        options = _pip_options().items()
        # "docker", since the other format has no health check. Layers, so that what is alike is built once.
        ways = (
            *("--isolation", "chroot", "--pull-never", "--layers", "--format", "docker"),
            *("--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"),
            # Other tests run what `make setup` has optimized; it takes gcc four times as long.
            "--env=PPROF_MERGE_OPTIMIZE=0",
            *(f"--env=PIP_{name.upper().replace('-', '_')}={value}" for name, value in options),
        )
        image = f"localhost/{target or 'last'}"
        chosen = ["--target", target] if target else []
        self._run("build", *ways, *chosen, "--file", str(ROOT / dockerfile), "--tag", image, str(ROOT))
        container = self._run("from", "--pull-never", image)
        config = json.loads(self._run("inspect", "--type", "image", image))["Docker"]["config"]
        try:
            yield Image(config, Path(self._run("mount", container)))
        finally:
            self._run("umount", container)
            self._run("rm", container)
            self._run("rmi", image)

    def _make_base(self, rootfs: Path) -> None:
        """Make the base: Debian 12 with its own Python 3.11, under the name of the official Python image."""
        include = "--include=ca-certificates,python3,python3-venv"
        subprocess.run(
            ["debootstrap", "--variant=minbase", include, "bookworm", rootfs, *_mirror()],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
        (rootfs / "usr" / "bin" / "python").symlink_to("python3")
        container = self._run("from", "scratch")
        self._run("add", container, str(rootfs), "/")
        self._run("commit", "--rm", container, _BASE)
        shutil.rmtree(rootfs)

    def _run(self, command: str, *arguments: str) -> str:
        storage = ("--root", _STORAGE / "root", "--runroot", _STORAGE / "run")
        finished = subprocess.run(
            ["buildah", *storage, command, *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr[-3000:]
        return finished.stdout.strip()


def _mirror() -> list[str]:
    """Return the mirror in apt's configuration, as a list of one, or of none."""
    finished = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Release: bookworm", "Identifier: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.stdout.split()[:1]


def _pip_options() -> dict[str, str]:
    """Return pip's index options of this machine, without local folders, which the build doesn't have."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    options = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    values = {name.rpartition(".")[2]: value.strip("'\"") for name, value in options.items()}
    return {
        name: value
        for name, value in values.items()
        if name in {"index-url", "cert", "timeout", "trusted-host"}
    }
