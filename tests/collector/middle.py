"""A proxy between a collector and its bucket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Middle:
    """A proxy before the gateway, which can lose answers, answer with an error, or hold requests up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lost = 0
        self.errors = 0
        self.holds = False
        self.seen: list[bytes] = []
        self._held: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while request := _message(client):
                self.seen.append(request.partition(b"\r\n")[0])
                if self.errors and request.startswith(b"PUT"):
                    self.errors -= 1
                    client.sendall(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
                    continue
                if self.holds:
                    self._held.append(request)
                    client.recv(1)  # until the client gives up
                    return
                answer = self._forward(request)
                if self.lost and request.startswith(b"PUT"):
                    self.lost -= 1
                    return
                client.sendall(answer)
                return

    def _forward(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            server.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            answer = b""
            while part := server.recv(1 << 16):
                answer += part
        return answer

    def let_go(self) -> None:
        """Have the requests that were held up arrive, though nobody waits for their answers."""
        self.holds = False
        while self._held:
            self._forward(self._held.pop(0))

    def close(self) -> None:
        self._listener.close()


def _message(client: socket.socket) -> bytes:
    """Return a request with its body; nothing if the client has gone."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := client.recv(1 << 16)):
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = [
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ] or [0]
    while len(body) < length:
        body += client.recv(1 << 16)
    return head + b"\r\n\r\n" + body
