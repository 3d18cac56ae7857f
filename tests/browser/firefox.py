"""A headless Firefox, driven by WebDriver BiDi, which it speaks itself.

Playwright drives only a Firefox of its own, which Debian doesn't have, and Selenium needs a program besides.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Request, TextMessage

from tests.server import Server

PATH = shutil.which("firefox-esr") or shutil.which("firefox")
NONE: Mapping[str, object] = MappingProxyType({})
_PATIENCE_SECONDS = 120
_LISTENING = re.compile(r"WebDriver BiDi listening on ws://([\d.]+):(\d+)")


class Firefox:
    """A window of a new user. `faults` are the errors and warnings of the console, and of scripts."""

    def __init__(self, host: str, port: int) -> None:
        self.faults: list[str] = []
        self._socket = socket.create_connection((host, port), timeout=_PATIENCE_SECONDS)
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._number = 0
        self._send(Request(host=f"{host}:{port}", target="/session"))
        while not isinstance(self._receive(), AcceptConnection):
            pass
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    @classmethod
    @contextmanager
    def running(cls, home: Path, preferences: Mapping[str, object] = NONE) -> Iterator[Self]:
        """Run the browser with a new profile in a folder, and with these preferences."""
        home.mkdir()
        lines = (
            f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()
        )
        (home / "user.js").write_text("".join(lines))
        log = home / "log"
        command = [
            str(PATH),
            "--headless",
            "--no-remote",
            "--profile",
            str(home),
            "--remote-debugging-port",
            "0",
        ]
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                deadline = time.monotonic() + _PATIENCE_SECONDS
                while not (found := _LISTENING.search(log.read_text())):
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.1)
                firefox = cls(found[1], int(found[2]))
                with firefox._socket:
                    yield firefox
            finally:
                process.terminate()

    def go(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        self._ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def run(self, script: str) -> Any:
        """Return the value of an expression on the page, which may be a promise."""
        target = {"context": self._context}
        answer = self._ask("script.evaluate", expression=script, target=target, awaitPromise=True)
        assert answer["type"] == "success", answer
        return answer["result"].get("value")

    def count(self, selector: str) -> int:
        """Return how many elements a selector of CSS finds; works without scripts on the page, too."""
        locator = {"type": "css", "value": selector}
        return len(self._ask("browsingContext.locateNodes", context=self._context, locator=locator)["nodes"])

    def add_cookie(self, name: str, value: str, domain: str) -> None:
        """Have a cookie sent to a host."""
        text = {"type": "string", "value": value}
        self._ask("storage.setCookie", cookie={"name": name, "value": text, "domain": domain, "path": "/"})

    def resize(self, width: int) -> None:
        """Make the window `width` pixels wide."""
        viewport = {"width": width, "height": 860}
        self._ask("browsingContext.setViewport", context=self._context, viewport=viewport)

    def drag(self, kind: str, begin: tuple[float, float], *further: tuple[float, float]) -> None:
        """Drag with a `mouse`, or with a finger (`touch`); places are in pixels of the window."""
        start, *moves = (
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 20}
            for x, y in (begin, *further)
        )
        press, lift = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
        pointer = {
            "type": "pointer",
            "id": kind,
            "parameters": {"pointerType": kind},
            "actions": [start, press, *moves, lift],
        }
        self._ask("input.performActions", context=self._context, actions=[pointer])

    def sign_in(self, server: Server) -> None:
        self.go(f"{server.base_url}/ui/sign-in")
        self.run(f"document.querySelector('[name=key]').value = {server.merge_key!r}")
        self.run("document.querySelector('main form button').click()")
        self.wait("document.querySelector('h1')?.textContent === 'Fleet'")

    def wait(self, condition: str) -> None:
        """Wait until an expression on the page is true."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.run(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.1)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its result; note what the console says meanwhile."""
        self._number += 1
        command = json.dumps({"id": self._number, "method": method, "params": parameters})
        self._send(Message(data=command))
        while True:
            message = json.loads(self._text())
            if message["type"] == "event":
                entry = message["params"]
                if entry["level"] in {"error", "warn"}:
                    self.faults.append(str(entry["text"]))
            elif message["id"] == self._number:
                assert message["type"] == "success", message
                result: dict[str, Any] = message["result"]
                return result

    def _text(self) -> str:
        """Return the next message, whole."""
        text = ""
        while True:
            event = self._receive()
            if isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    return text

    def _receive(self) -> object:
        """Return the next event of the connection."""
        while True:
            for event in self._connection.events():
                return event
            self._connection.receive_data(self._socket.recv(1 << 16))

    def _send(self, event: Request | Message[str]) -> None:
        self._socket.sendall(self._connection.send(event))
