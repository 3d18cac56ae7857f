"""A collector whose listening socket the test holds, as systemd does, also while no process runs."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.server import COMMAND, Server

_SCRIPT = 'exec 3<&"$0"; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'


class HeldServer(Server):
    """`pgo-collector serve` that gets its socket by LISTEN_FDS."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(home, environment)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, *arguments: object) -> None:
        super().__exit__(*arguments)
        self._socket.close()

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        held = self._socket.fileno()
        return subprocess.Popen(
            ["bash", "-c", _SCRIPT, str(held), COMMAND, *arguments],
            stderr=subprocess.PIPE,
            env=self.environment,
            pass_fds=[held],
        )
