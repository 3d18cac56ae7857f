"""Thousands of scrape targets on one port, and a collector for them: `python -m tests.bench.targets PROFILE`.

GET /N/debug/pprof/profile?seconds=S answers after S seconds with the profile, at a time of its own. POST
accepts everything. Prints its port, and at the end of its input what it saw, as JSON.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pprof_proto.profile_pb2 import Profile

_FASTEST = 1


class Targets:
    """The server.

    `asked` counts the requests by target, `taken` has the posted bodies, and `most` is the highest number of
    concurrent requests.
    """

    def __init__(self, protobuf: bytes) -> None:
        self._protobuf = protobuf
        self._number = time.time_ns()
        self.asked: Counter[str] = Counter()
        self.under_way = self.most = self.taken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, request by request."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *lines = head.decode().split("\r\n")
                method, target, _ = request.split()
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                await reader.readexactly(int(headers.get("content-length", 0)))
                if method == "POST":
                    self.taken += 1
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                else:
                    body = await self._profile(target)
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _profile(self, target: str) -> bytes:
        parts = urlsplit(target)
        self.asked[parts.path] += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(float(parse_qs(parts.query)["seconds"][0]))
        self.under_way -= 1
        self._number += 1
        # If a field is there twice, its last value counts.
        return gzip.compress(self._protobuf + Profile(time_nanos=self._number).SerializeToString(), _FASTEST)


async def main(protobuf: bytes) -> None:
    """Serve until the end of the input."""
    targets = Targets(protobuf)
    server = await asyncio.start_server(targets.serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - how else would one know?
    await asyncio.to_thread(sys.stdin.read)
    seen = {"targets": len(targets.asked), "most": targets.most, "taken": targets.taken}
    print(json.dumps(seen))  # noqa: T201 - as above


if __name__ == "__main__":
    asyncio.run(main(gzip.decompress(Path(sys.argv[1]).read_bytes())))
