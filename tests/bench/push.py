"""A Push of Pyroscope's clients, beside a submit of the same profile."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

from tests.bench.measure import Cost, in_turns
from tests.bench.report import Section, ratio, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, Serving, ours
from tests.collector.pushing import PROTOBUF, PUSH, one
from tests.server import Server

_ROUNDS = 5
_CLIENTS = 16


def sections(rig: Rig) -> list[Section]:
    """Measure the table."""
    files = sorted(rig.real.iterdir())
    rows = []
    with ExitStack() as stack:
        serving = stack.enter_context(ours(stack.enter_context(Server(rig.scratch / "pushes"))))
        for clients in (1, _CLIENTS):
            each, size = rig.count(200), f"{clients} client{'s' * (clients > 1)}"
            requests = _requests(files)
            contenders = {name: partial(_round, serving, of, each, clients) for name, of in requests.items()}
            for measure in contenders.values():  # the first requests of a kind cost more
                measure()
            costs = in_turns(f"push: {size}", rig.rounds(_ROUNDS), contenders)
            submit, push, submit_bare, push_gzip = (costs[name].cpu for name in requests)
            rows += [
                [f"{size}, gzip", "≤ 1.2", ratio(push, submit), seconds(push), seconds(submit)],
                [
                    f"{size}, bare",
                    "≤ 1.2",
                    ratio(push_gzip, submit_bare),
                    *map(seconds, (push_gzip, submit_bare)),
                ],
            ]
            files = files[each * (_ROUNDS + 1) :]
    head = ("clients, profile", "asked", "Push ÷ submit: CPU", "Push", "submit")
    return [
        Section(
            "Push",
            f"""{table(head, rows)}

CPU of all the server's processes for one real profile, by Push (Pyroscope) and by `/v1/submit`. "gzip" is a
profile as Grafana Alloy sends it, gzipped in a bare message; "bare" is one as Python's SDK sends it, in a
message that is gzipped as a whole, beside a bare submit. Either is then compressed to be stored.""",
        )
    ]


def _requests(files: list[Path]) -> Mapping[str, Iterator[Request]]:
    """Return requests with the profiles of files in each form; each form has a service of its own."""
    key = Server.submit_key

    def push(body: bytes) -> Request:
        return Request("POST", PUSH, body, key, headers=tuple(PROTOBUF.items()))

    def contents() -> Iterator[bytes]:
        return map(Path.read_bytes, files)

    return {
        "submit": (Request("POST", "/v1/submit?service=submit", body, key) for body in contents()),
        "push": (push(one(body, "push")) for body in contents()),
        "bare submit": (
            Request("POST", "/v1/submit?service=bare-submit", gzip.decompress(body), key)
            for body in contents()
        ),
        "gzip push": (push(gzip.compress(one(gzip.decompress(body), "bare-push"))) for body in contents()),
    }


def _round(serving: Serving, requests: Iterator[Request], each: int, clients: int) -> Cost:
    return serving.cost([[request] for request in islice(requests, each)], clients)
