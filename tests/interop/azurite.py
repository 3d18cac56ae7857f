"""Azurite, Microsoft's own server of Azure's blobs for tests, at a free port of loopback. It needs Node."""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from pathlib import Path

import httpx

from tests.interop.listening import free_port

_MODULES = Path(__file__).parents[2] / ".dev" / "azurite" / "node_modules"
_SERVER = _MODULES / "azurite" / "dist" / "src" / "blob" / "main.js"
MISSING = "" if _SERVER.exists() and shutil.which("node") else "Azurite is missing: make setup WITH=clients"
_OPTIONS = "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"
_DEADLINE_SECONDS = 60.0
_ACCOUNT = "tests"
_VERSION = "2021-08-06"
# The lines of the eleven headers that are signed by their places, of which no request here has any.
_NO_HEADERS = "\n" * 12


class Azurite:
    """A running Azurite."""

    scheme = "az"

    def __init__(self, port: int) -> None:
        self._port = port
        self._key = secrets.token_bytes(32)

    @property
    def accounts(self) -> str:
        """Its account, as the variable AZURITE_ACCOUNTS names it."""
        return f"{_ACCOUNT}:{base64.b64encode(self._key).decode()}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which clients find it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(self._key).decode(),
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self._port}",
        }

    def new_bucket(self) -> str:
        """Make a container, and return its name."""
        name, date = f"c{secrets.token_hex(8)}", formatdate(usegmt=True)
        headers = f"x-ms-date:{date}\nx-ms-version:{_VERSION}"
        text = f"PUT{_NO_HEADERS}{headers}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode()
        httpx.put(
            f"http://127.0.0.1:{self._port}/{_ACCOUNT}/{name}?restype=container",
            headers={
                "x-ms-date": date,
                "x-ms-version": _VERSION,
                "Authorization": f"SharedKey {_ACCOUNT}:{signature}",
            },
        ).raise_for_status()
        return name


@contextmanager
def running_azurite() -> Iterator[Azurite]:
    """Run Azurite with its objects in memory."""
    port = free_port()
    server = Azurite(port)
    address = "--blobHost", "127.0.0.1", "--blobPort", str(port)
    command: list[str | Path] = ["node", _SERVER, *_OPTIONS, *address]
    environment = os.environ | {"AZURITE_ACCOUNTS": server.accounts}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(port, process)
            yield server
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert process.poll() is None, "Azurite ended"
        assert time.monotonic() < deadline, "Azurite doesn't listen"
        time.sleep(0.1)
