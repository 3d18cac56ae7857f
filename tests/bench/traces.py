"""Traces: what they cost a submit, and what the gate costs a request that isn't traced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from pgo_collector.traces.gate import Description
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.traces.signing import Verifier, new_origin, sign
from pgo_collector.traces.spans import PARTS
from pgo_collector.traces.tracing import Choice, SignedTracing
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.bench.measure import Cost, in_turns
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, Serving, ours
from tests.server import Server

_ROUNDS = 7
_KEY, _WRONG = "the-trace-key-of-the-benchmark", "a-key-that-the-server-does-not-have"
_WINDOW = 86_400.0

Headers = tuple[tuple[str, str], ...]


def _signed(key: str) -> Headers:
    return tuple(sign(key.encode(), *new_origin(), int(time.time())).items())


# What each server is told besides the key, and the headers of its requests.
_CASES: dict[str, tuple[dict[str, str] | None, Callable[[], Headers]]] = {
    "not configured": (None, tuple),
    "unsigned": ({}, tuple),
    "with a bad signature": ({}, lambda: _signed(_WRONG)),
    "signed, no parts": ({"PGOF_TRACE_PARTS": ""}, lambda: _signed(_KEY)),
    "signed, all parts": ({}, lambda: _signed(_KEY)),
}


def sections(rig: Rig) -> list[Section]:
    """Measure both tables."""
    keys = rig.scratch / "trace_keys"
    keys.write_text(f"{_KEY}\n")
    return [
        Section(
            "Traces",
            f"""{table(("a submit", "CPU", "more than not configured", "clock"), _submits(rig, keys))}

A submit of a real profile over a kept connection, as above; five servers, in turns.

{table(("a request", "CPU in the gate"), _gate(rig, keys))}

The outermost layer of the server by itself, around an application that does nothing. Asked: 5 µs for a
request that is not signed, 15 µs for one whose signature is wrong.""",
        )
    ]


def _submits(rig: Rig, keys: Path) -> Iterator[list[str]]:
    each = rig.count(100)
    files = sorted(rig.real.iterdir())
    with ExitStack() as stack:
        contenders: dict[str, Callable[[], Cost]] = {}
        for number, (name, (environment, headers)) in enumerate(_CASES.items()):
            traced = {"PGOF_TRACE_KEYS_FILE": str(keys), "PGOF_TRACE_WINDOW": f"{_WINDOW:g}"}
            told = {} if environment is None else traced | environment
            server = stack.enter_context(Server(rig.scratch / f"traced-{number}", told))
            serving = stack.enter_context(ours(server))
            contenders[name] = partial(_round, serving, map(Path.read_bytes, files), each, headers)
        for measure in contenders.values():  # the first requests of a kind cost more
            measure()
        costs = in_turns("traces: submits", rig.rounds(_ROUNDS), contenders)
    without = costs["not configured"].cpu
    for name, cost in costs.items():
        yield [name, seconds(cost.cpu), f"{100 * (cost.cpu / without - 1):+.1f} %", seconds(cost.wall)]


def _round(serving: Serving, bodies: Iterator[bytes], each: int, headers: Callable[[], Headers]) -> Cost:
    requests = [
        Request("POST", "/v1/submit", body, Server.submit_key, headers=headers())
        for body in islice(bodies, each)
    ]
    return serving.cost([[request] for request in requests])


def _gate(rig: Rig, keys: Path) -> Iterator[list[str]]:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer nothing."""

    verifier = Verifier(_WINDOW, takes_osprofiler=True)
    tracing = SignedTracing(Choice(frozenset(PARTS), 1000), TraceKeys(keys), verifier, ())
    gate = tracing.around(application, lambda _: Description("", "", {}))
    cases: dict[str, tuple[ASGIApp, Callable[[], Headers]]] = {
        "not configured": (application, tuple),
        "unsigned": (gate, tuple),
        "with a bad signature": (gate, lambda: _signed(_WRONG)),
        "signed, no step in it": (gate, lambda: _signed(_KEY)),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rig.rounds(_ROUNDS)):
        for name, (app, headers) in cases.items():
            times[name].append(asyncio.run(_cpu_of(app, [_scope(headers()) for _ in range(rig.count(2000))])))
    for name, found in times.items():
        yield [name, f"{1e6 * median(found):.1f} µs"]


def _scope(headers: Headers) -> Scope:
    usual = {
        "host": "collector",
        "user-agent": "pgo-agent",
        "accept": "*/*",
        "authorization": "Bearer key",
        "content-length": "30000",
        "content-type": "application/octet-stream",
    }
    raw = [(name.lower().encode(), value.encode()) for name, value in (*usual.items(), *headers)]
    return {"type": "http", "method": "POST", "path": "/", "headers": raw}


async def _cpu_of(app: ASGIApp, scopes: list[Scope]) -> float:
    """Return the CPU seconds of a request."""

    async def receive() -> dict[str, object]:
        return {}

    async def send(_: object) -> None:
        """Take nothing."""

    began = time.process_time()
    for scope in scopes:
        await app(scope, receive, send)
    return (time.process_time() - began) / len(scopes)
