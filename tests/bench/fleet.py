"""A collector with the profiles of one service from 16 instances, and the requests to it."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from urllib.parse import urlencode

from tests.bench.serving import Request, ours
from tests.oracle.builder import seeded
from tests.server import Server

_INSTANCES = [f"pod-{number:02}" for number in range(16)]
_CLIENTS = 4
# There is a profile for every minute of almost seven; the sources were not taken in the same hour.
_SPAN = dt.timedelta(days=8)


class Fleet:
    """The profiles to submit: `stored` at first, and `more` one by one."""

    def __init__(self, server: Server, files: Sequence[Path], stored: int) -> None:
        self.server = server
        self._stored = list(enumerate(files[:stored]))
        self._others = iter(list(enumerate(files))[stored:])
        self._random = seeded(1)

    def load(self) -> None:
        """Submit the stored profiles, over a few connections at once."""
        with ThreadPoolExecutor(_CLIENTS) as clients:
            list(
                clients.map(self._submit_all, (self._stored[client::_CLIENTS] for client in range(_CLIENTS)))
            )

    def lose_rows(self) -> None:
        """Kill the server, and delete the rows that its workers have written."""
        self.server.kill()
        shutil.rmtree(self.server.data / "rows")

    def more(self) -> Request:
        """Submit a new profile."""
        return _submit(*next(self._others))

    def all(self, format_: str = "pprof", etag: str = "") -> Request:
        """Return a request for the merge of all profiles, by the time span in which they were taken."""
        return self._merge({"format": format_}, etag)

    def any_half(self, format_: str = "pprof") -> Request:
        """Return a request for the merge of half of the instances, a different half each time."""
        half = self._random.sample(_INSTANCES, len(_INSTANCES) // 2)
        return self._merge({"format": format_, "labels": f"instance={'|'.join(half)}"})

    def _merge(self, query: dict[str, str], etag: str = "") -> Request:
        path = f"/v1/merge?{urlencode(query | self._span)}"
        return Request("GET", path, key=Server.merge_key, etag=etag)

    @cached_property
    def _span(self) -> dict[str, str]:
        with ours(self.server) as serving:
            answer = serving.ask(Request("GET", "/v1/services", key=Server.merge_key))
        (service,) = json.loads(answer.body)["services"]
        oldest = dt.datetime.fromisoformat(service["types"][0]["oldest"])
        return {"from": oldest.isoformat(), "to": (oldest + _SPAN).isoformat()}

    def _submit_all(self, numbered: Sequence[tuple[int, Path]]) -> None:
        with ours(self.server) as serving:
            for number, file in numbered:
                serving.ask(_submit(number, file))


def _submit(number: int, file: Path) -> Request:
    labels = urlencode({"labels": f"instance={_INSTANCES[number % len(_INSTANCES)]}"})
    return Request("POST", f"/v1/submit?{labels}", file.read_bytes(), Server.submit_key)
