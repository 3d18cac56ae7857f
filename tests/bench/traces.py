"""Traces: what they cost a submit and a merge, and what the gate costs a request that isn't traced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pgo_collector.traces.gate import Description
from pgo_collector.traces.keys import TraceKeys
from pgo_collector.traces.reports import ReportBounds
from pgo_collector.traces.signing import Verifier, new_origin, sign
from pgo_collector.traces.tracing import Choice, SignedTracing
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.bench.fleet import Fleet
from tests.bench.measure import Cost, in_turns
from tests.bench.report import Section, seconds, table
from tests.bench.rig import Rig
from tests.bench.serving import Request, Serving, ours
from tests.constants import TRACE_WINDOW
from tests.server import Server

_ROUNDS = 15
_KEY, _WRONG = "the-trace-key-of-the-benchmark", "a-key-that-the-server-does-not-have"
_WINDOW = 86_400.0
# Profiles that are there to be merged, at least one of each instance.
_STORED, _LEAST_STORED = 320, 16

Headers = tuple[tuple[str, str], ...]


def _signed(key: str) -> Headers:
    return tuple(sign(key.encode(), *new_origin(), int(time.time())).items())


# What the servers are told besides the key; one of them traces nothing, and has no key either.
_SERVERS: dict[str, dict[str, str] | None] = {
    "untraced": None,
    "traced": {},
}
# The server of each case, and the headers of its requests. Those of one server are answered by one process,
# since two processes of the same program differ by more than some of the cases.
_CASES: dict[str, tuple[str, Callable[[], Headers]]] = {
    "not configured": ("untraced", tuple),
    "unsigned": ("traced", tuple),
    "with a bad signature": ("traced", lambda: _signed(_WRONG)),
    "signed": ("traced", lambda: _signed(_KEY)),
}


class _Running(NamedTuple):
    """A server, the profiles that are merged there, and those to submit."""

    serving: Serving
    fleet: Fleet
    bodies: Iterator[bytes]

    def submit(self) -> Request:
        """Return a request that submits a profile which isn't there yet, of a service that nobody merges."""
        return Request("POST", "/v1/submit?service=submitted", next(self.bodies), Server.submit_key)


def sections(rig: Rig) -> list[Section]:
    """Measure the tables."""
    keys = rig.scratch / "trace_keys"
    keys.write_text(f"{_KEY}\n")
    with _running(rig, keys) as servers:
        tables = {
            "a kept merge": _table(rig, servers, "a kept merge", 100, lambda server: server.fleet.all()),
            "a merge": _table(rig, servers, "a merge", 20, lambda server: server.fleet.any_half()),
            "a submit": _table(rig, servers, "a submit", 60, _Running.submit),
        }
    return [
        Section(
            "Traces",
            f"""{tables["a submit"]}

A submit of a real profile over a kept connection, as above.

{tables["a kept merge"]}

The merge of {_stored(rig)} profiles, of which none is new.

{tables["a merge"]}

A merge of half of their instances that has to be made: the half is different each time.

Three servers, in turns. "Unsigned", "with a bad signature" and "signed" are answered by one of
them, in one process. Two processes differ by some percent even if both do the same, so the increase over
unsigned requests is the exact one. Asked: ≤ 15 % for a submit of 30 KB that is signed.

{table(("a request", "CPU in the gate"), _gate(rig, keys))}

The outermost layer of the server by itself, around an application that does nothing. Asked: 5 µs for a
request that is not signed, 15 µs for one whose signature is wrong.""",
        )
    ]


def _stored(rig: Rig) -> int:
    return max(_LEAST_STORED, rig.count(_STORED))


@contextmanager
def _running(rig: Rig, keys: Path) -> Iterator[Mapping[str, _Running]]:
    """Yield the servers by name, with profiles to merge."""
    files = sorted(rig.real.iterdir())
    stored = _stored(rig)
    with ExitStack() as stack:
        servers: dict[str, _Running] = {}
        for name, told in _SERVERS.items():
            traced = {"PGOF_TRACE_KEYS_FILE": str(keys), TRACE_WINDOW: f"{_WINDOW:g}"}
            environment = {} if told is None else traced | told
            server = stack.enter_context(Server(rig.scratch / f"traces-{name}", environment))
            fleet = Fleet(server, files, stored)
            fleet.load()
            serving = stack.enter_context(ours(server))
            servers[name] = _Running(serving, fleet, map(Path.read_bytes, files[stored:]))
        yield servers


def _table(
    rig: Rig, servers: Mapping[str, _Running], name: str, each: int, request: Callable[[_Running], Request]
) -> str:
    """Return a table of what a request costs in each case."""
    contenders: dict[str, Callable[[], Cost]] = {
        case: partial(_round, servers[server], rig.count(each), request, headers)
        for case, (server, headers) in _CASES.items()
    }
    for measure in contenders.values():  # the first requests of a kind cost more
        measure()
    costs = in_turns(f"traces: {name}", rig.rounds(_ROUNDS), contenders)
    untraced, unsigned = costs["not configured"].cpu, costs["unsigned"].cpu
    rows = (
        [case, seconds(cost.cpu), _more(cost.cpu, untraced), _more(cost.cpu, unsigned), seconds(cost.wall)]
        for case, cost in costs.items()
    )
    return table((name, "CPU", "more than not configured", "more than unsigned", "clock"), rows)


def _more(cpu: float, than: float) -> str:
    return f"{100 * (cpu / than - 1):+.1f} %"


def _round(
    server: _Running, each: int, request: Callable[[_Running], Request], headers: Callable[[], Headers]
) -> Cost:
    requests: Sequence[Request] = [request(server)._replace(headers=headers()) for _ in range(each)]
    return server.serving.cost([[one] for one in requests])


def _gate(rig: Rig, keys: Path) -> Iterator[list[str]]:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer nothing."""

    verifier = Verifier(_WINDOW)
    tracing = SignedTracing(Choice(1000, ReportBounds(64, 60.0, 60.0)), TraceKeys(keys), verifier, ())
    gate = tracing.around(application, lambda: lambda _: Description("", "", {}))
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
