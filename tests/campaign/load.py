"""Load for a campaign: threads that submit, combine and query, and check the answers.

A bad answer is a fault of the collector only if nothing disturbed it from before the request until after it:
code that disturbs it says so with `Calm.disturbed`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random
from threading import Event, Lock, Thread
from typing import Final, NamedTuple, Self

import httpx

from tests.campaign.fleet import Ledger, Maker, Marked, marks_of
from tests.server import Server, bearer

# A well-behaved client waits this long for its answer, and then sends again.
PROBE_TIMEOUT: Final = 3.0
_TIMEOUT: Final = 20.0
_RETRY_SECONDS: Final = 0.2

Fault = Callable[[str], None]


class Calm:
    """The times when nothing excuses a failure of the collector."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._disturbed = 0
        self._lock = Lock()

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Excuse failures of requests that are in progress during the context."""
        with self._lock:
            self._disturbed += 1
        try:
            yield
        finally:
            with self._lock:
                self._disturbed -= 1
                self._since = time.monotonic()

    def held(self, since: float) -> bool:
        """Return whether it is calm, and has been since then."""
        with self._lock:
            return not self._disturbed and self._since <= since


class Address:
    """The collector's address, which changes with each start; None while it is down."""

    def __init__(self) -> None:
        self.url: str | None = None


class Answer(NamedTuple):
    """The result of a request; without an answer, `status` is 0 and `text` has the reason."""

    status: int
    content: bytes
    text: str
    headers: httpx.Headers
    seconds: float


class Client:
    """An HTTP client to the collector's current address, for one thread."""

    def __init__(self, address: Address, timeout: float = _TIMEOUT) -> None:
        self._address = address
        self._client = httpx.Client(timeout=timeout, verify=False)  # noqa: S501 (plain HTTP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(
        self, method: str, path: str, key: str, query: dict[str, str] | None = None, content: bytes = b""
    ) -> Answer:
        """Send a request and read its whole answer."""
        begin = time.monotonic()
        try:
            if self._address.url is None:
                raise httpx.ConnectError("the collector is down")
            answer = self._client.request(
                method,
                f"{self._address.url}{path}",
                params=query,
                content=content,
                headers=bearer(key) if key else {},
            )
        except (httpx.TransportError, httpx.DecodingError) as error:
            reason = f"{type(error).__name__}: {error}"
            return Answer(0, b"", reason, httpx.Headers(), time.monotonic() - begin)
        text = "" if answer.is_success else answer.text[:300]
        return Answer(answer.status_code, answer.content, text, answer.headers, time.monotonic() - begin)

    def sign_in(self, key: str) -> str:
        """Return the cookie of a new session of the pages; empty if there is none."""
        with suppress(httpx.TransportError):
            form = {"key": key, "next": "/ui/"}
            answer = self._client.post(f"{self._address.url}/ui/sign-in", data=form)
            self._client.cookies.clear()
            return str(answer.headers.get("Set-Cookie", "")).partition(";")[0]
        return ""

    def page(self, path: str, cookie: str) -> Answer:
        """Request a page with a session's cookie."""
        begin = time.monotonic()
        try:
            answer = self._client.get(f"{self._address.url}{path}", headers={"Cookie": cookie})
        except httpx.TransportError as error:
            return Answer(0, b"", str(error), httpx.Headers(), time.monotonic() - begin)
        text = "" if answer.is_success else answer.text[:300]
        return Answer(answer.status_code, answer.content, text, answer.headers, time.monotonic() - begin)

    def submit(self, marked: Marked, content: bytes) -> Answer:
        """Send a profile by the route that takes its time."""
        query = {"service": marked.service, "type": marked.type, "labels": marked.labels}
        if not marked.undated:
            return self.ask("POST", "/v1/submit", Server.submit_key, query, content)
        taken = time.gmtime(marked.time_nanos // 1_000_000_000)
        query["created_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", taken)
        return self.ask("POST", "/api/0/profiles", Server.submit_key, query, content)


@dataclass
class Load:
    """The threads, as a context manager; `choose` makes up profiles, `queries` make up requests.

    Statistics: `answers` by kind of request and status, and `retries` of submits.
    """

    address: Address
    ledger: Ledger
    maker: Maker
    calm: Calm
    fault: Fault
    choose: Callable[[Random, int], Marked]
    queries: Sequence[Callable[[Random], tuple[str, str, dict[str, str]]]]
    seed: int = 0
    senders: int = 3
    askers: int = 1
    pause_seconds: float = 0.03
    numbers: Iterator[int] = field(default_factory=count)
    answers: Counter[str] = field(default_factory=Counter)
    retries: int = 0

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._over = Event()
        self._going = Event()
        self._busy = 0
        self._threads: list[Thread] = []
        self._recent: deque[int] = deque(maxlen=3000)

    def __enter__(self) -> Self:
        self._going.set()
        actions = [self._send] * self.senders + [self._ask] * self.askers
        for number, action in enumerate(actions):
            random = Random(f"{self.seed}/{number}")  # noqa: S311 - nothing secret
            thread = Thread(target=self._repeat, args=(action, random), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._going.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep all threads from sending anything during the context."""
        self._going.clear()
        try:
            deadline = time.monotonic() + 2 * _TIMEOUT
            while self._busy and time.monotonic() < deadline:
                time.sleep(0.01)
            yield
        finally:
            self._going.set()

    def marked(self, random: Random) -> Marked:
        """Make up a profile with a new number."""
        with self._lock:
            number = next(self.numbers)
        return self.choose(random, number)

    def send_until_acknowledged(self, client: Client, marked: Marked) -> None:
        """Send a profile like an agent, until it is acknowledged; give up when paused or over."""
        body = self.maker.body(marked)
        self.ledger.send(marked, body)
        while True:
            begin = time.monotonic()
            answer = client.submit(marked, body.content)
            self.count("submit", answer)
            if 200 <= answer.status < 300:
                self.ledger.acknowledge(marked)
                self._recent.append(marked.number)
                return
            if 400 <= answer.status < 500 and answer.status not in {408, 429}:
                self.fault(f"a profile was refused, {answer.status}: {answer.text}")
                return
            if self.calm.held(begin):
                self.fault(f"a submit failed though all was well, {answer.status}: {answer.text}")
            self.retries += 1
            if not self._going.is_set() or self._over.is_set():
                return
            time.sleep(_RETRY_SECONDS)

    def send_again(self, client: Client, marked: Marked) -> None:
        """Send an acknowledged profile once more."""
        begin = time.monotonic()
        answer = client.submit(marked, self.maker.body(marked).content)
        self.count("submit again", answer)
        if marked.service == "expiring" and answer.status == 503 and "isn't gone yet" in answer.text:
            return  # it is too old by now, and is being deleted
        if not 200 <= answer.status < 300 and self.calm.held(begin):
            self.fault(f"a profile that is stored was refused, {answer.status}: {answer.text}")

    def check_merge(self, client: Client, owner: tuple[str, str]) -> bool:
        """Merge all profiles of an owner and check it by the ledger; return whether it was answered."""
        must, begin = self.ledger.must(owner), time.monotonic()
        service, type_ = owner
        answer = client.ask("GET", "/v1/merge", Server.merge_key, {"service": service, "type": type_})
        self.count("merge", answer)
        if answer.status in {200, 404}:
            try:
                counts = marks_of(answer.content) if answer.status == 200 else Counter()
            except ValueError as error:
                self.fault(f"{service}/{type_}: {error}")
                return True
            left_out = answer.headers.get("PGO-Left-Out", "")
            for what in self.ledger.wrong(owner, must, counts):
                self.fault(f"a merge: {what}" + (f"; left out: {left_out[:200]}" if left_out else ""))
            return True
        if self.calm.held(begin):
            self.fault(f"a merge failed though all was well, {answer.status}: {answer.text}")
        return False

    def count(self, kind: str, answer: Answer) -> None:
        """Count an answer."""
        with self._lock:
            self.answers[f"{kind} {answer.status or 'without an answer'}"] += 1

    def of(self, kind: str) -> int:
        """Return the number of answers of a kind such as `submit 204`."""
        with self._lock:
            return sum(times for name, times in self.answers.items() if name.startswith(kind))

    def sample(self, random: Random, most: int) -> list[Marked]:
        """Return some recently acknowledged profiles."""
        recent = list(self._recent)
        return [self.ledger.sent[number] for number in random.sample(recent, min(most, len(recent)))]

    def _repeat(self, action: Callable[[Client, Random], None], random: Random) -> None:
        try:
            with Client(self.address) as client:
                while not self._over.is_set():
                    self._going.wait()
                    with self._at_work():
                        if self._going.is_set() and not self._over.is_set():
                            action(client, random)
                    time.sleep(self.pause_seconds * random.uniform(0.5, 1.5))
        except Exception as error:  # noqa: BLE001 - without its load a campaign finds nothing
            self.fault(f"the campaign's own thread ended: {type(error).__name__}: {error}")

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def _send(self, client: Client, random: Random) -> None:
        if random.random() < 0.15 and (again := self.sample(random, 1)):
            self.send_again(client, again[0])
        else:
            self.send_until_acknowledged(client, self.marked(random))

    def _ask(self, client: Client, random: Random) -> None:
        method, path, query = random.choice(self.queries)(random)
        begin = time.monotonic()
        answer = client.ask(method, path, Server.merge_key, query)
        self.count("query", answer)
        if (answer.status >= 500 or not answer.status) and self.calm.held(begin):
            what = f"{method} {path} {query}"
            self.fault(f"a query failed though all was well, {answer.status}: {what}: {answer.text}")


class _Background:
    """Runs `_run` in a thread during a context, until `_over` is set."""

    def __init__(self) -> None:
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5 * PROBE_TIMEOUT)

    def _run(self) -> None:
        raise NotImplementedError


class Probe(_Background):
    """A well-behaved client, as a context manager: it submits small profiles, each until it is acknowledged.

    `gap` returns how long no submit succeeded.
    """

    def __init__(self, load: Load, owner: tuple[str, str], every_seconds: float = 0.1) -> None:
        self._load = load
        self._owner = owner
        self._every = every_seconds
        super().__init__()
        self._pending: Marked | None = None
        self._last_begun = -1.0
        self.succeeded: list[float] = []
        self.slowest = 0.0
        self.failures: Counter[str] = Counter()

    def gap(self, since: float, until: float) -> float:
        """Return the longest time, in seconds, without a success between two moments."""
        moments = [since, *(moment for moment in list(self.succeeded) if since < moment < until), until]
        return max(after - before for before, after in pairwise(moments))

    def wait_for_success(self, seconds: float) -> bool:
        """Return whether a submit that starts from now on succeeds within `seconds`."""
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            if self._last_begun > begin:
                return True
            time.sleep(0.02)
        return False

    def _run(self) -> None:
        random = Random(f"{self._load.seed}/probe")  # noqa: S311 - nothing secret
        with Client(self._load.address, PROBE_TIMEOUT) as client:
            while not self._over.is_set():
                self._submit(client, random)
                self._over.wait(self._every)

    def _submit(self, client: Client, random: Random) -> None:
        if self._pending is None:
            service, type_ = self._owner
            self._pending = self._load.marked(random)._replace(
                service=service, type=type_, base=-1, undated=False, labels="", time_nanos=time.time_ns()
            )
        body, begin = self._load.maker.body(self._pending), time.monotonic()
        self._load.ledger.send(self._pending, body)
        answer = client.submit(self._pending, body.content)
        self._load.count("probe", answer)
        if answer.status == 204:
            self._load.ledger.acknowledge(self._pending)
            self._pending, self._last_begun = None, begin
            self.succeeded.append(time.monotonic())
            self.slowest = max(self.slowest, answer.seconds)
        else:
            self.failures[f"{answer.status} {answer.text[:100]}"] += 1


class Watch(_Background):
    """A client that requests /readyz all the time, like an alert; a context manager."""

    def __init__(self, address: Address, every_seconds: float = 0.5) -> None:
        self._address = address
        self._every = every_seconds
        super().__init__()
        # The time and the status of each request; 0 is no answer.
        self.answers: list[tuple[float, int]] = []

    def said_ready_throughout(self, since: float, until: float) -> bool:
        """Return whether there were answers between two moments, all with status 200."""
        statuses = [status for moment, status in list(self.answers) if since <= moment <= until]
        return bool(statuses) and set(statuses) == {200}

    def _run(self) -> None:
        with Client(self._address, PROBE_TIMEOUT) as client:
            while not self._over.is_set():
                begin = time.monotonic()
                self.answers.append((begin, client.ask("GET", "/readyz", "").status))
                self._over.wait(self._every)
