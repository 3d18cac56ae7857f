"""Two stores side by side: what a key for some services reads must not depend on others.

One has only the profiles of the key's services, the other those of others, too. Questions are made for every
route of the application's own table, with words of both.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from pathlib import Path
from random import Random
from shutil import copytree
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
from pgo_collector.http.parameters import PARAMETERS
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span
from pgo_collector.traces.trace_store import FILE, TraceStore
from pgo_collector.ui.selection_bar import PAGES
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route

from tests.collector.querying import CPU, SAMPLES
from tests.collector.visitor import Visitor
from tests.constants import LABEL_VALUES, QUERY_LABELS, QUERY_POINTS
from tests.faults.stacks import SECOND, profile_of
from tests.merge.tracked import MS, delayed, tracked
from tests.server import Server, bearer

DAY = 86_400 * SECOND
KEYS = {"key-of-shops": "shop,shop-*", "key-of-shop": "shop"}
# Both have one order of sets, in which the document of the API lists some things.
SETTINGS = {
    "PYTHONHASHSEED": "0",
    "PGOF_STORAGE": "",
    QUERY_LABELS: "13",
    QUERY_POINTS: "50",
    LABEL_VALUES: "5",
}

OWN_TRACE, OTHERS_TRACE = "a" * 32, "b" * 32
# The type of profiles of latencies, and what only they have.
_WAITS, _OF_WAITS = "offcpu", ("/histogram", "/heatmap", "/latency")

# Routes that store or change something, or say something of the process and not of what is stored.
NOT_ASKED: Mapping[str, str] = MappingProxyType(
    {
        "POST /v1/submit": "stores",
        "POST /v1/symbols": "stores",
        "POST /v1/binaries": "stores",
        "DELETE /v1/binaries/{build_id}": "deletes",
        "POST /v1/releases": "makes a release",
        "PUT /v1/releases/{number}/pin": "pins a release",
        "DELETE /v1/releases/{number}/pin": "unpins a release",
        "POST /api/0/profiles": "stores",
        "POST /api/0/profiles/": "stores",
        "POST /push.v1.PusherService/Push": "stores",
        "POST /ingest": "stores",
        "POST /pyroscope/ingest": "stores",
        "POST //ingest": "stores",
        "POST /parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw": "stores",
        "POST /parca.debuginfo.v1alpha1.DebuginfoService/Upload": "stores",
        "POST /debuginfo.v1alpha1.DebuginfoService/Upload/{build_id}": "stores",
        "POST /debuginfo.v1alpha1.DebuginfoService/DeleteDebuginfo": "deletes",
        "POST /v1development/profiles": "stores",
        "POST /profiling/v1/input": "stores",
        "POST /api/profile/{app}": "stores",
        "DELETE /api/profile/{app}": "deletes",
        "POST /v1/traces/{trace}/steps": "stores steps of a trace",
        "POST /ui/sign-in": "signs in",
        "POST /ui/sign-out": "signs out",
        "POST /ui/example": "stores",
        "POST /ui/example/remove": "deletes",
        "POST /ui/file": "opens a file",
        "POST /ui/services/{service}/live": "takes a profile",
        "GET /metrics": "has keys of its own, for who runs the collector",
        "GET /readyz": "says what the workers have read, without a key, to who runs the collector",
        "GET /api/health": "says how the process is",
        "GET /api/ready": "says how the process is",
    }
)
_SELECTION = ("service", "type", "labels", "from", "to", "last")
_OF_PAGES = (
    *_SELECTION[1:], "profile_id", "trace_id", "span_id",
    "n", "by", "sort", "search", "cursor", "choose", "find", "key", "value", "is", "page",
    "sample_type", "focus", "base_service", "base_labels", "function", "package", "step", "group",
)  # fmt: skip
# Parameters that routes take without declaring them, by the beginning of the path.
_UNDECLARED = {
    "/api/0/profiles": (*_SELECTION, "limit"),
    "/ui/services/": _OF_PAGES,
    "/ui/file/services/": _OF_PAGES,
    "/ui/": ("search", "cursor", "type"),
}
# How often both are asked again, until an answer is the same: the clock may go on to the next second between.
_TRIES = 6
# How many questions follow from one.
_MOST_FOLLOWING = 3
# Parameters without which a route only says that they are missing.
_NEEDED = {"function", "query", "leftQuery", "rightQuery", "page", "type", "base_labels", "service", "key"}


class Profile(NamedTuple):
    """A profile to store: its series, the function of its only stack, and its time in ns since 1970."""

    service: str
    type: str
    labels: str
    function: str
    time: int

    @property
    def body(self) -> bytes:
        """Return the bare profile."""
        if self.type == _WAITS:
            waits = [delayed(f"{self.function};wait", len(self.labels) * MS, 4), delayed(self.function, MS)]
            return tracked(waits, time_nanos=self.time)
        kind = "cpu" if self.type in {"cpu", "process_cpu"} else self.type
        return profile_of(self.function, time_nanos=self.time, type_=kind)

    @property
    def id(self) -> str:
        """Return the id by which it is selected."""
        return sha256(self.body).hexdigest()[:32]

    def store(self, server: Server) -> None:
        """Submit it."""
        query = {"service": self.service, "type": self.type, "labels": self.labels}
        answer = server.submit(self.body, query=query)
        assert answer.status_code == 204, answer.text


@dataclass(frozen=True)
class Words:
    """Profiles that are stored, of whose words questions are made: the key's, and others."""

    own: Sequence[Profile]
    others: Sequence[Profile]
    now: int

    @property
    def is_plain(self) -> bool:
        """Return whether only one profile is asked about, by what it needs."""
        return len(self.own) == 1

    def any(self, random: Random) -> Profile:
        """Return a profile, mostly one of the key's services."""
        return random.choice(self.own if random.randrange(3) else self.others)


def words(random: Random) -> Words:
    """Return random profiles of two sets of services, without a word in common but keys of labels."""
    now = time.time_ns() // DAY * DAY

    def some(services: Sequence[str], prefix: str, count: int) -> list[Profile]:
        keys = ["region", "version", "instance", f"{prefix}.zone", f"{prefix}_only", "k8s.pod"]
        made = []
        for number in range(count):
            type_ = random.choice(("cpu", "cpu", "cpu", "heap", "wall", "process_cpu", "other", _WAITS))
            labels = [f"{key}={prefix}{random.randrange(6)}" for key in keys if random.randrange(3) == 0]
            if type_ == "other":
                labels.append(f"profile_name={prefix}name{random.randrange(3)}")
            taken = now - random.randrange(12) * DAY - random.randrange(DAY)
            series = random.choice(services), type_, ",".join(labels)
            made.append(Profile(*series, f"{prefix}.f{number}", taken))
        return made

    own = [
        Profile("shop", "cpu", "region=own0", "own.first", now - DAY),
        Profile("shop-eu", "cpu", "own.zone=own1", "own.second", now - DAY),
        Profile("shop", _WAITS, "region=own0", "own.waits", now - DAY),
        Profile("shop", _WAITS, "region=own1", "own.more.waits", now - DAY),
        *some(("shop", "shop-eu"), "own", 14),
    ]
    others = [
        Profile("bank", "cpu", "region=his0,k8s_pod=his1,own_zone=his1", "his.first", now - 3 * DAY),
        Profile("shop2", "other", "profile_name=ownname0", "his.second", now),
        Profile("bank", _WAITS, "region=his0", "his.waits", now - DAY),
        *(
            Profile("bank", "cpu", f"region=many{number % 2}{number}", "his.third", now)
            for number in range(30)
        ),
        *some(("bank", "sho", "shopping"), "his", 20),
    ]
    return Words(own, others, now)


class Answer(NamedTuple):
    """All that an answer says: status, headers but the date, and body."""

    status: int
    headers: list[tuple[str, str]]
    body: str


@dataclass(frozen=True)
class Question:
    """A request: what it is of the route table, and what is sent."""

    route: str
    method: str
    path: str
    parameters: Sequence[tuple[str, str]] = ()
    body: Any = None
    depth: int = 0  # how many questions it follows from

    def ask(self, asked: Asked) -> Answer:
        """Return the answer."""
        options: dict[str, Any] = {"params": [*self.parameters]}
        if self.body is not None:
            options |= {"content": json.dumps(self.body).encode()}
        headers = {**asked.headers, **({"Content-Type": "application/json"} if self.body is not None else {})}
        with asked.server.client.stream(self.method, self.path, headers=headers, **options) as answer:
            streams = answer.headers.get("Content-Type", "").startswith("text/event-stream")
            body = _first_event(answer) if streams else answer.read()
            kept = [(name, value) for name, value in answer.headers.items() if name != "date"]
        shown = [(name, asked.plain(value)) for name, value in kept]
        return Answer(answer.status_code, sorted(shown), asked.plain(body.decode("latin-1")))


def _first_event(answer: httpx.Response) -> bytes:
    body = b""
    for piece in answer.iter_bytes():
        body += piece
        if b"\ndata:" in body:
            break
    return body


_AGE = re.compile(r'(?<="age_seconds":)\s*\d+')


class Asked:
    """A store that is asked with one key, as a client of the API and as a visitor of the pages."""

    def __init__(self, server: Server, key: str) -> None:
        self.server = server
        visitor = Visitor(server, key)
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        self.headers = bearer(key) | {"Cookie": cookie}

    def plain(self, text: str) -> str:
        """Return a text without the store's own address, and without ages in seconds, which reports have."""
        return _AGE.sub("0", text.replace(self.server.base_url, "(here)"))


def routes_of(app: Starlette) -> dict[str, list[str]]:
    """Return the routes of an application, as `GET /path`, and the parameters that each takes."""
    found: dict[str, list[str]] = {}

    def add(routes: Sequence[BaseRoute], prefix: str) -> None:
        for route in routes:
            if isinstance(route, Mount):
                add(route.routes or [], prefix + route.path)
            elif isinstance(route, Route):
                path = prefix + route.path
                undeclared = next((of for start, of in _UNDECLARED.items() if path.startswith(start)), ())
                names = sorted({*getattr(route, "parameters", {}), *undeclared})
                for method in {*(route.methods or {"GET"})} - {"HEAD"}:
                    found[f"{method} {path}"] = names

    add(app.routes, "")
    return found


def questions(
    routes: Mapping[str, list[str]], known: Words, random: Random, count: int
) -> Iterator[Question]:
    """Yield questions to each route that reads: a plain one, `count` random ones, and some on purpose."""
    yield from _ON_PURPOSE
    for route, names in routes.items():
        if route in NOT_ASKED:
            continue
        method, template = route.split(" ", 1)
        plain = next(each for each in known.own if (each.type == _WAITS) == template.endswith(_OF_WAITS))
        for number in range(count + 1):
            of = known if number else Words([plain], [plain], known.now)
            path = _path(template, of, random)
            if method == "POST" and template.startswith(("/querier", "/settings", "/parca", "/debuginfo")):
                message = _message(of, random)
                if template.endswith("/Diff"):
                    message = {"left": message, "right": _message(of, random)}
                    message["right"]["profileTypeID"] = message["left"]["profileTypeID"]
                yield Question(route, method, path, (), message)
                continue
            taken = [
                name
                for name in names
                if name != "and_combine" and (name in _NEEDED or (number and random.randrange(4) == 0))
            ]
            if {"function", "package"} <= {*taken}:
                taken.remove(random.choice(("function", "package")))
            given = [(name, _VALUES[name](of, random)) for name in taken]
            if "service" in taken and number and not random.randrange(3):
                given.append(("service", _VALUES["service"](of, random)))
            body = "x" if template == "/v1/report" and method == "POST" else None
            yield Question(route, method, path, [pair for pair in given if pair[1]], body)


def _asking(method: str, **fields: Any) -> Question:
    path = f"/querier.v1.QuerierService/{method}"
    return Question(f"POST {path}", "POST", path, (), {"profileTypeID": CPU, "step": 86_400, **fields})


# Questions whose answers have depended on what others store: bounds on the values of a label that both have,
# how a key is spelled, what the name of a profile measures elsewhere, and where a page of a list ends.
_ON_PURPOSE = (
    _asking("SelectSeries", labelSelector='{region=~".+"}'),
    _asking("SelectMergeProfile", labelSelector='{region=~"many1.*"}'),
    _asking("LabelValues", name="k8s_pod"),
    _asking("LabelValues", name="own_zone", matchers=['{own_zone!=""}']),
    _asking("Series", labelNames=["own_zone", "service_name"]),
    _asking("ProfileTypes"),
    Question("GET /v1/profiles", "GET", "/v1/profiles", (("service", "shop"), ("limit", "1"))),
)


def _path(template: str, known: Words, random: Random) -> str:
    values = {
        "service": known.any(random).service,
        "app": known.any(random).service,
        "number": "1" if known.is_plain else str(random.randrange(1, 3)),
        "build_id": "a1",
        "ids": "an-id",
        "trace": OWN_TRACE if known.is_plain else random.choice((OWN_TRACE, OTHERS_TRACE)),
        "method": random.choice(("AnalyzeQuery", "Get")),
    }
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], template)


def _service(known: Words, random: Random) -> str:
    if known.is_plain:
        return "shop"
    return random.choice((*(["shop"] * 6), known.any(random).service, "nobody", "*", ""))


def _type(known: Words, random: Random) -> str:
    if known.is_plain:
        return known.own[0].type
    return random.choice(("", "cpu", "cpu", known.any(random).type))


def _labels(known: Words, random: Random) -> str:
    if known.is_plain or not random.randrange(3):
        return ""
    labels = [of for of in known.any(random).labels.split(",") if of]
    return ",".join(of.replace("=", random.choice(("=", "!=")), 1) for of in labels[:2])


def _selector(known: Words, random: Random) -> str:
    matchers: list[str] = []
    if known.is_plain:
        return '{service_name="shop"}'
    for _ in range(random.randrange(3)):
        of = known.any(random)
        pairs = [
            *(each.partition("=") for each in of.labels.split(",") if each),
            ("service_name", "", of.service),
        ]
        key, _equals, value = random.choice(pairs)
        value = random.choice((value, value[:3] + ".*", ".+", ".*", ""))
        key, operator = random.choice((key, key.replace(".", "_"))), random.choice(("=", "!=", "=~", "!~"))
        matchers.append(f'"{key}"{operator}"{value}"')
    return "{" + ",".join(matchers) + "}"


def _profile_type(known: Words, random: Random) -> str:
    if known.is_plain:
        return CPU
    name = dict(of.partition("=")[::2] for of in known.any(random).labels.split(",")).get(
        "profile_name", "wall"
    )
    return random.choice((CPU, CPU, SAMPLES, f"{name}:wall:nanoseconds:wall:nanoseconds"))


def _query(known: Words, random: Random) -> str:
    return _profile_type(known, random) + _selector(known, random)


def _of_schema(name: str) -> Callable[[Words, Random], str]:
    schema, _ = PARAMETERS[name]

    def value(_: Words, random: Random) -> str:
        if schema.get("enum"):
            return str(random.choice(schema["enum"]))
        return str(random.choice((1, 2, 5))) if schema["type"] == "integer" else ""

    return value


def _a_time(known: Words, random: Random) -> str:
    at = datetime.fromtimestamp(known.now // SECOND - random.randrange(14 * 86_400), UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _time_ms(known: Words, random: Random) -> str:
    return str(known.now // 10**6 - random.randrange(14) * 86_400_000)


def _function(known: Words, random: Random) -> str:
    return known.any(random).function


_VALUES: Mapping[str, Callable[[Words, Random], str]] = {
    **{name: _of_schema(name) for name in PARAMETERS},
    "service": _service,
    "base_service": _service,
    "trim_path": lambda _, random: random.choice(("", "/src", "/home:/src")),
    "weights": lambda known, random: random.choice(("", f"shop:2,{known.any(random).service}:1")),
    "type": _type,
    "labels": _labels,
    "base_labels": lambda known, random: _labels(known, random) or "region!=own0",
    "from": _a_time,
    "to": _a_time,
    "base_from": _a_time,
    "base_to": _a_time,
    "function": _function,
    "package": lambda known, random: _function(known, random).partition(".")[0],
    "focus": _function,
    "search": lambda known, random: random.choice((known.any(random).service, _function(known, random)))[:4],
    "query": _query,
    "leftQuery": _query,
    "rightQuery": _query,
    **dict.fromkeys(("until", "leftFrom", "leftUntil", "rightFrom", "rightUntil"), _time_ms),
    "profile_id": lambda known, random: random.choice(("", known.any(random).id)),
    "trace_id": lambda _, random: random.choice(("", "", OWN_TRACE)),
    "span_id": lambda _, random: random.choice(("", "", OWN_TRACE[:16])),
    "max-nodes": lambda _, random: str(random.randrange(1, 50)),
    "group": lambda known, random: random.choice(_keys_and_values(known, random)[0]),
    "choose": lambda known, random: random.choice(_keys_and_values(known, random)[0]),
    "key": lambda known, random: random.choice(_keys_and_values(known, random)[0]),
    "value": lambda known, random: "=" + random.choice(_keys_and_values(known, random)[1]),
    "find": lambda known, random: random.choice(_keys_and_values(known, random)[1])[:3],
    "is": lambda _, random: random.choice(("", "none-of")),
    "page": lambda _, random: random.choice([*PAGES]),
}


def _keys_and_values(known: Words, random: Random) -> tuple[list[str], list[str]]:
    pairs = [of.partition("=") for of in known.any(random).labels.split(",") if of]
    return [key for key, _, _ in pairs] or ["region"], [value for _, _, value in pairs] or ["own0"]


def _message(known: Words, random: Random) -> dict[str, Any]:
    """Return the fields of all calls of the querier: each reads its own, and ignores the others."""
    if known.is_plain:
        selector = _selector(known, random)
        return {
            "profileTypeID": CPU,
            "labelSelector": selector,
            "matchers": [selector],
            "name": "region",
            "step": 86_400,
        }
    keys, _ = _keys_and_values(known, random)
    message: dict[str, Any] = {
        "profileTypeID": _profile_type(known, random),
        "labelSelector": _selector(known, random),
        "step": random.choice((3600, 86_400)),
        "name": random.choice((*keys, "service_name", "__name__", "own_zone", "k8s_pod", "region")),
    }
    if random.randrange(2):
        message["matchers"] = [_selector(known, random) for _ in range(random.randrange(3))]
    if random.randrange(2):
        message["groupBy"] = [random.choice((*keys, "service_name", "own_zone"))]
        message["labelNames"] = [*message["groupBy"], "__name__"]
    if random.randrange(2):
        message |= {"start": _time_ms(known, random), "end": str(known.now // 10**6 + 86_400_000)}
    if not random.randrange(3):
        message["profileIdSelector"] = [known.any(random).id for _ in range(3)]
    message["exemplarType"] = random.choice(("EXEMPLAR_TYPE_NONE", "EXEMPLAR_TYPE_INDIVIDUAL"))
    if not random.randrange(6):
        message["stackTraceSelector"] = {"goPgo": {"keepLocations": 5}}
    return message


@contextmanager
def stores(
    home: Path, known: Words, server: Callable[[Path], Server] = Server
) -> Iterator[tuple[Server, Server]]:
    """Run two collectors: one with the profiles of the key's services alone, one with all of them.

    The numbers of their rows differ. Each has a release of each of the key's services, and traces of
    requests about them, one of which is part of a trace that goes on in another service.
    """
    alone, beside = server(home / "alone"), server(home / "beside")
    try:
        for each in (alone, beside):
            for file in (each.submit_keys, each.merge_keys):
                lines = [f"{key} service={scope}\n" for key, scope in KEYS.items()]
                file.write_text(file.read_text() + "".join(lines))
            each.environment |= SETTINGS
            each.start()
        traced = [_trace(OWN_TRACE, "shop", known.now), _trace(OWN_TRACE, "shop-eu", known.now)]
        _keep_traces(alone, traced)
        _keep_traces(
            beside,
            [
                _trace(OTHERS_TRACE, "bank", known.now),
                *traced,
                _trace(OWN_TRACE, "bank", known.now - SECOND),
            ],
        )
        half = len(known.others) // 2
        for profile in known.others[:half]:
            profile.store(beside)
        for profile in known.own:
            profile.store(alone)
            profile.store(beside)
        for profile in known.others[half:]:
            profile.store(beside)
        for service in ("shop", "shop-eu"):
            assert alone.ask("/v1/releases", "POST", service=service).status_code == 201
        copytree(alone.area("releases"), beside.area("releases"), dirs_exist_ok=True)  # made at the same time
        yield alone, beside
    finally:
        alone.kill()
        beside.kill()


def _trace(trace: str, service: str, now: int) -> RequestTrace:
    """Return the trace of a request about a service."""
    spans = [
        Span(f"{number:016x}", f"{number - 1:016x}" if number else "", "http", name, now, now + 10**6, {})
        for number, name in enumerate((f"GET /of-{service}", f"key check of {service}"))
    ]
    return RequestTrace(trace, service, 200, spans)


def _keep_traces(server: Server, traces: Sequence[RequestTrace]) -> None:
    store = TraceStore(server.data / FILE, inf, 64)
    store.write(traces)
    store.close()


class Difference(NamedTuple):
    """A question whose answers differ, the key that asks it, and the answers without and with others."""

    question: Question
    key: str
    alone: Answer
    beside: Answer


def differences(
    alone: Server, beside: Server, asked: Iterable[Question], counts: Counter[str]
) -> Iterator[Difference]:
    """Yield each difference in the answers to questions, and to those that follow from them.

    `counts` gets the number of questions by route and status.
    """
    both = {key: (Asked(alone, key), Asked(beside, key)) for key in KEYS}
    for first in asked:
        for key, (one, other) in both.items():
            left = [first]
            while left:
                question = left.pop()
                answers = question.ask(one), question.ask(other)
                seen = [[answer] for answer in answers]
                for _ in range(_TRIES):
                    if any(answer in seen[1] for answer in seen[0]):
                        break
                    seen[0].append(question.ask(one))
                    seen[1].append(question.ask(other))
                counts[f"{question.route} {answers[0].status}"] += 1
                if not any(answer in seen[1] for answer in seen[0]):
                    yield Difference(question, key, *answers)
                elif question.depth < _MOST_FOLLOWING:
                    left += _following(question, answers[0])


def _following(question: Question, answer: Answer) -> Iterator[Question]:
    """Yield questions with what an answer names: the next page of a list, and the ids of profiles."""
    if ("content-type", "application/json") not in answer.headers:
        return
    found = json.loads(answer.body.encode("latin-1"))
    if isinstance(found, dict) and found.get("next"):
        given = [pair for pair in question.parameters if pair[0] != "cursor"]
        yield replace(question, parameters=[*given, ("cursor", found["next"])], depth=question.depth + 1)
    if question.path == "/api/0/profiles" and isinstance(found.get("body"), list):
        for end in ("", "/"):
            path = f"/api/0/profiles/{found['body'][0]['id']}{end}"
            yield Question(f"GET /api/0/profiles/{{ids}}{end}", "GET", path, depth=_MOST_FOLLOWING)
