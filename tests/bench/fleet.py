"""A collector with the profiles of one service from 16 instances, and what it is asked for."""

from __future__ import annotations

import datetime as dt
import json
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
    """Of the files `stored` are submitted at first; `more` gives one of the others each time."""

    def __init__(self, server: Server, files: Sequence[Path], stored: int) -> None:
        self.server = server
        self._stored = list(enumerate(files[:stored]))
        self._others = iter(list(enumerate(files))[stored:])
        self._random = seeded(1)

    def load(self) -> None:
        """Submits what is to be stored, over a few connections at once."""
        with ThreadPoolExecutor(_CLIENTS) as clients:
            list(
                clients.map(self._submit_all, (self._stored[client::_CLIENTS] for client in range(_CLIENTS)))
            )

    def more(self) -> Request:
        """Submits a profile that wasn't there."""
        return _submit(*next(self._others))

    def all(self, format_: str = "pprof", etag: str = "") -> Request:
        """Asks for the merge of all, for the span that they were taken in."""
        return self._merge({"format": format_}, etag)

    def any_half(self, format_: str = "pprof") -> Request:
        """Asks for the merge of what half of the instances sent, another half each time."""
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
