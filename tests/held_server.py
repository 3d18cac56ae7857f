"""A collector whose listening socket the test holds, as systemd does, also while no process runs."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

from tests.server import Process, Server
from tests.zygote import Zygote


class HeldServer(Server):
    """`pgo-collector serve` that gets its socket by LISTEN_FDS."""

    def __init__(self, home: Path, zygote: Zygote) -> None:
        super().__init__(home)
        self._zygote = zygote
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, *arguments: object) -> None:
        super().__exit__(*arguments)
        self._socket.close()

    def _spawn(self, *arguments: str) -> Process:
        return self._zygote.start(arguments, self.environment, self._socket.fileno())
