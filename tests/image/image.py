"""Images, built from their Dockerfiles as anybody would build them, but for where their base comes from.

There is no registry in a test: the base is made by debootstrap, and named as the real one. Builds run with
buildah in a chroot, and containers as `run_read_only.sh` has them, since a machine for tests seldom lets a
container runtime do its work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.server import Process, Server, descendants

ROOT = Path(__file__).parents[2]
USER = 10001
# What `setpriv` makes of root for a container that isn't.
ORDINARY = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs", "--bounding-set=-all")
_STORAGE = ROOT / ".dev" / "image"
_BASE = "docker.io/library/python:3.11-slim-bookworm"
_CERTIFICATES = Path("/etc/ssl/certs")
_SECONDS = 900


@dataclass(frozen=True)
class Image:
    """What was built: its configuration, and its files in a folder."""

    config: dict[str, Any]
    files: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the image sets."""
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    def command(
        self,
        mounts: Sequence[str],
        environment: Mapping[str, str],
        *command: str,
        rights: Sequence[str] = ORDINARY,
        sees_all: bool = False,
    ) -> list[str]:
        """A command in a container: see run_read_only.sh; `sees_all` is Kubernetes' hostPID."""
        variables = [f"{name}={value}" for name, value in (self.environment | {**environment}).items()]
        alone = ["unshare", "--mount", *([] if sees_all else ["--pid", "--fork", "--kill-child"])]
        script = Path(__file__).with_name("run_read_only.sh")
        return [
            *alone,
            "bash",
            str(script),
            str(self.files),
            *mounts,
            "--",
            *variables,
            "--",
            *rights,
            "--",
            *command,
        ]


class Container(Server):
    """The image's own command, as its own user, with nothing but /data to write to."""

    def __init__(self, image: Image, home: Path) -> None:
        super().__init__(home)
        self._image = image
        self.data.mkdir()
        os.chown(self.data, USER, USER)
        # A container's files are made by another user than those who look at them.
        home.chmod(0o755)

    def command(self, environment: Mapping[str, str], *command: str) -> list[str]:
        """A command in a container with this data folder, and these keys."""
        return self._image.command([f"{self.data}:/data", f"{self.home}:/secret:ro"], environment, *command)

    def _spawn(self, *arguments: str) -> Process:
        settings = {"PGOF_BIND_ADDRESS": "127.0.0.1:0", "PGOF_WORKERS": "2"}
        command = self.command(settings, *self._image.config["Entrypoint"], *arguments)
        return _Alone(command, stderr=subprocess.PIPE)


class _Alone(subprocess.Popen[bytes]):
    """`unshare`, which passes no signal on to the process that it waits for, and is."""

    def send_signal(self, sig: int) -> None:
        for pid in descendants(self.pid)[:1]:
            os.kill(pid, sig)


@contextmanager
def built(dockerfile: str, *targets: str) -> Iterator[list[Image]]:
    """Builds each of the targets of a Dockerfile, "" is its last; skips where that can't be."""
    for program in ("buildah", "debootstrap", "unshare"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    builder = _Buildah(_STORAGE)
    if not builder.has(_BASE):
        _make_base(builder, _STORAGE / "rootfs")
    with ExitStack() as stack:
        stack.callback(builder.run, "rmi", "--prune")
        yield [stack.enter_context(_built(builder, dockerfile, target)) for target in targets]


@contextmanager
def _built(builder: _Buildah, dockerfile: str, target: str) -> Iterator[Image]:
    certificates = ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
    pip = [f"--env=PIP_{name.upper().replace('-', '_')}={value}" for name, value in _pip_options().items()]
    # "docker", since the other format has no health check. Layers, so that targets share their stages.
    ways = ["--isolation", "chroot", "--pull-never", "--layers", "--format", "docker", *certificates, *pip]
    image = f"localhost/{target or 'last'}"
    chosen = ["--target", target] if target else []
    builder.run("build", *ways, *chosen, "--file", str(ROOT / dockerfile), "--tag", image, str(ROOT))
    container = builder.run("from", "--pull-never", image)
    config = json.loads(builder.run("inspect", "--type", "image", image))["Docker"]["config"]
    try:
        yield Image(config, Path(builder.run("mount", container)))
    finally:
        builder.run("umount", container)
        builder.run("rm", container)
        builder.run("rmi", image)


class _Buildah:
    def __init__(self, storage: Path) -> None:
        self._ways = ["--root", str(storage / "root"), "--runroot", str(storage / "run")]

    def run(self, command: str, *arguments: str) -> str:
        finished = subprocess.run(
            ["buildah", *self._ways, command, *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr[-3000:]
        return finished.stdout.strip()

    def has(self, image: str) -> bool:
        return bool(self.run("images", "--quiet", "--filter", f"reference={image}"))


def _make_base(builder: _Buildah, rootfs: Path) -> None:
    """Debian 12 with its Python, which is 3.11 as well, under the name of the image with Python's own."""
    include = "--include=ca-certificates,python3,python3-venv"
    subprocess.run(
        ["debootstrap", "--variant=minbase", include, "bookworm", rootfs, *_mirror()],
        check=True,
        capture_output=True,
        timeout=_SECONDS,
    )
    (rootfs / "usr" / "bin" / "python").symlink_to("python3")
    container = builder.run("from", "scratch")
    builder.run("add", container, str(rootfs), "/")
    builder.run("commit", "--rm", container, _BASE)
    shutil.rmtree(rootfs)


def _mirror() -> list[str]:
    """Where this machine gets its packages from, if apt says so."""
    finished = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Release: bookworm", "Identifier: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.stdout.split()[:1]


def _pip_options() -> dict[str, str]:
    """How pip gets its packages on this machine; folders of this machine aren't there in the build."""
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
