"""Built images, and the containers that run them.

Containers are as `run_read_only.sh` has them, since a machine for tests seldom lets a container runtime work.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server import Process, Server, descendants

ROOT = Path(__file__).parents[2]
USER = 10001
# What `setpriv` makes of root for a container that isn't.
ORDINARY = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs", "--bounding-set=-all")


@dataclass(frozen=True)
class Image:
    """A built image: its configuration, and its files in a folder."""

    config: dict[str, Any]
    files: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that the image sets."""
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    def command(
        self,
        mounts: Sequence[str],
        environment: Mapping[str, str],
        *command: str,
        rights: Sequence[str] = ORDINARY,
        sees_all: bool = False,
    ) -> list[str]:
        """Return a command line that runs a command in a container; `sees_all` is Kubernetes' hostPID."""
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
    """A container: the image's command, as the image's user, with only /data writable."""

    def __init__(self, image: Image, home: Path) -> None:
        super().__init__(home)
        self._image = image
        self.data.mkdir()
        for own in (self.data, self.submit_keys, self.merge_keys):
            os.chown(own, USER, USER)
        # A container's files are made by another user than those who look at them.
        home.chmod(0o755)

    def command(self, environment: Mapping[str, str], *command: str) -> list[str]:
        """Return a command line that runs a command in a container with this data folder and these keys."""
        return self._image.command([f"{self.data}:/data", f"{self.home}:/secret:ro"], environment, *command)

    def _spawn(self, *arguments: str) -> Process:
        settings = {"PGOF_BIND_ADDRESS": "127.0.0.1:0", "PGOF_WORKERS": "2"}
        command = self.command(settings, *self._image.config["Entrypoint"], *arguments)
        return _Alone(command, stderr=subprocess.PIPE)


class _Alone(subprocess.Popen[bytes]):
    """A process of `unshare`; signals go to its child, since `unshare` doesn't pass them on."""

    def send_signal(self, sig: int) -> None:
        for pid in descendants(self.pid)[:1]:
            os.kill(pid, sig)
