"""The clients of several collectors: they submit, combine, merge and delete, and note what was acknowledged.

Most ask nginx, as real clients do, and some ask any collector. Some wait for their answers, and others send
again soon, so that one profile is sent to two collectors at once.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from threading import Event, Lock, Thread
from typing import Final, Self

import httpx

from tests.campaign.fleet import Ledger, Maker, Marked, Owner, marks_of
from tests.campaign.load import Address, Answer, Client
from tests.campaign.machine_parts import FULL_KEY, Machines
from tests.faults.stacks import DAY, SECOND
from tests.server import Server

SUBMITTERS: Final = 16
ASKERS: Final = 4
DELETERS: Final = 2
# How long retention keeps a profile.
KEEP_DAYS: Final = 10
OWNERS: Final[Sequence[Owner]] = (
    ("one", "cpu"), ("two", "cpu"), ("two", "wall"), ("three", "cpu"), ("four", "offcpu"),
)  # fmt: skip
EXPIRING: Final = ("expiring", "cpu")
# No request takes longer: a task may wait for a worker and run, twice; PostgreSQL and the object store have
# bounds of some seconds; a collector may be stopped for 25 s, and nginx asks others after half a minute, for
# a minute.
TIMEOUT_SECONDS: Final = 150.0
# An answer of a collector that was cut off doesn't come, and its client doesn't learn of it.
_DIRECT_SECONDS: Final = 60.0
_HASTY_SECONDS: Final = (3.0, 10.0)
_MOST_RETRY_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.25
_LABELS: Final = ("", "version=1", "version=1,pod=a", "version=1,pod=b", "version=2,pod=c")

Fault = Callable[[str], None]


@dataclass
class Clients:
    """The threads of all clients, as a context manager; `refusals` are counted by kind."""

    machines: Machines
    seed: int
    now: int
    fault: Fault
    deleters: int = DELETERS
    submitters: int = SUBMITTERS
    askers: int = ASKERS
    answers: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    slowest: float = 0.0

    def __post_init__(self) -> None:
        self.maker = Maker()
        self.ledger = Ledger(self.now - int((KEEP_DAYS - 1) * DAY))
        self.deleted: dict[Owner, set[int]] = {}
        self._numbers = count()
        self._lock = Lock()
        self._over = Event()
        self._recent: deque[int] = deque(maxlen=5000)
        self._threads: list[Thread] = []

    def __enter__(self) -> Self:
        roles = [self._submit] * self.submitters + [self._ask] * self.askers + [self._delete] * self.deleters
        for number, role in enumerate(roles):
            self._threads.append(Thread(target=self._repeat, args=(role, number), daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.fault("a client hangs")

    # What one client does.

    def send(self, random: Random, marked: Marked, *, is_hasty: bool = False) -> bool:
        """Send a profile until it is acknowledged; return whether it was, and not given up at the end."""
        body = self.maker.body(marked)
        self.ledger.send(marked, body)
        while True:
            timeout = random.choice(_HASTY_SECONDS) if is_hasty else TIMEOUT_SECONDS
            with Client(self._address(random, is_hasty=is_hasty), timeout) as client:
                answer = submitted(client, marked, body.content)
            self._note("submit", answer, is_hasty=is_hasty)
            if 200 <= answer.status < 300:
                self.ledger.acknowledge(marked)
                if marked.owner in OWNERS:
                    with self._lock:
                        self._recent.append(marked.number)
                return True
            if 400 <= answer.status < 500 and answer.status not in {408, 429, 499}:
                self.fault(f"a profile was refused, {answer.status}: {answer.text}")
                return False
            with self._lock:
                self.retries += 1
            if self._over.wait(retry_seconds(answer.headers) * random.uniform(0.5, 1)):
                return False

    def check_merge(self, address: Address, owner: Owner, *, combine: bool = False) -> bool:
        """Merge or combine all profiles of an owner, and check the answer; return whether there was one."""
        must = self.ledger.must(owner)
        query = {"service": owner[0], "type": owner[1]} | ({"and_combine": "true"} if combine else {})
        with self._client(address) as client:
            answer = client.ask("POST" if combine else "GET", "/v1/merge", Server.merge_key, query)
        self._note("combine" if combine else "merge", answer, is_hasty=address is not self.machines.url)
        if answer.status not in {200, 404}:
            return False
        try:
            counts = marks_of(answer.content) if answer.status == 200 else Counter[int]()
        except ValueError as error:
            self.fault(f"{'/'.join(owner)}: {error}")
            return True
        if left_out := answer.headers.get("PGO-Left-Out", ""):
            self.fault(f"a merge of {'/'.join(owner)} leaves out {left_out[:200]}")
        for what in self.ledger.wrong(owner, must, counts):
            self.fault(f"a merge by {address.url}: {what}")
        return True

    def check_deleted(self, address: Address, owner: Owner, gone: set[int]) -> None:
        """Check that a merge has nothing of what was deleted, if it is answered."""
        if back := self.still_there(address, owner, gone):
            self.fault(f"{len(back)} deleted profiles of {owner[0]} are in a merge by {address.url}")

    def still_there(self, address: Address, owner: Owner, gone: set[int]) -> set[int]:
        """Return which of the deleted profiles are in a merge; none if it isn't answered."""
        with self._client(address) as client:
            query = {"service": owner[0], "type": owner[1]}
            answer = client.ask("GET", "/v1/merge", Server.merge_key, query)
        return {*marks_of(answer.content)} & gone if answer.status == 200 else set()

    def sample(self, random: Random, most: int) -> list[Marked]:
        """Return some acknowledged profiles that nobody deletes."""
        with self._lock:
            recent = list(self._recent)
        return [self.ledger.sent[number] for number in random.sample(recent, min(most, len(recent)))]

    # How clients go on.

    def _repeat(self, role: Callable[[Random, int], None], number: int) -> None:
        random = Random(f"{self.seed}/client {number}")  # noqa: S311 - nothing secret
        try:
            while not self._over.wait(_PAUSE_SECONDS * random.uniform(0.5, 1.5)):
                role(random, number)
        except Exception as error:  # noqa: BLE001 - without its load a campaign finds nothing
            self.fault(f"the campaign's own client ended: {type(error).__name__}: {error}")

    def _submit(self, random: Random, number: int) -> None:
        is_hasty = number % 2 == 0
        if random.random() < 0.15 and (again := self.sample(random, 1)):
            self.send(random, again[0], is_hasty=is_hasty)
        else:
            self.send(random, self._new(random), is_hasty=is_hasty)

    def _new(self, random: Random) -> Marked:
        with self._lock:
            number = next(self._numbers)
        owner = EXPIRING if random.random() < 0.05 else random.choice(OWNERS)
        days = random.choice((random.uniform(0, 1.5), random.uniform(3, 5)))
        if owner == EXPIRING:
            days = random.uniform(KEEP_DAYS + 1, KEEP_DAYS + 4)
        # In whole seconds, like times in profefe's API.
        taken = (self.now - int(days * DAY)) // SECOND * SECOND
        undated = owner != EXPIRING and random.random() < 0.3
        return Marked(number, *owner, random.choice(_LABELS), taken, undated=undated)

    def _ask(self, random: Random, _: int) -> None:
        owner = random.choice(OWNERS)
        address = self._address(random, is_hasty=random.random() < 0.5)
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                self.check_merge(address, owner)
            case 4 | 5:
                self.check_merge(address, owner, combine=True)
            case 6:
                self._query(address, "/v1/top", {"service": "*"})
            case 7:
                self._query(address, "/v1/top", {"service": owner[0], "type": owner[1]})
            case 8:
                self._query(address, "/v1/profiles", {"service": owner[0], "type": owner[1], "limit": "20"})
            case _:
                self._query(address, "/v1/services", {})

    def _query(self, address: Address, path: str, query: dict[str, str]) -> None:
        with self._client(address) as client:
            answer = client.ask("GET", path, Server.merge_key, query)
        self._note("query", answer, is_hasty=address is not self.machines.url)

    def _delete(self, random: Random, number: int) -> None:
        """Submit profiles to a service of one's own, delete them, and check that they are gone."""
        owner = f"gone-{number}", "cpu"
        with self._lock:
            numbers = [next(self._numbers) for _ in range(random.randrange(1, 5))]
        for each in numbers:
            if not self.send(random, Marked(each, *owner, "", self.now + each)):
                return
        path = f"/api/profile/{owner[0]}"
        while True:
            with Client(self.machines.url, TIMEOUT_SECONDS) as client:
                answer = client.ask("DELETE", path, FULL_KEY, {"service": owner[0]})
            self._note("delete", answer)
            if answer.status in {200, 404}:
                break
            if self._over.wait(retry_seconds(answer.headers)):
                return
        gone = self.deleted.setdefault(owner, set())
        gone |= {*numbers}
        self.check_deleted(self._address(random, is_hasty=random.random() < 0.5), owner, gone)

    def _client(self, address: Address) -> Client:
        """Return a client that waits as long as an answer from there may take."""
        return Client(address, TIMEOUT_SECONDS if address is self.machines.url else _DIRECT_SECONDS)

    def _address(self, random: Random, *, is_hasty: bool) -> Address:
        """Return nginx's address; for the hasty now and then a collector's."""
        if is_hasty and random.random() < 0.3:
            return random.choice(self.machines.members).address
        return self.machines.url

    def _note(self, kind: str, answer: Answer, *, is_hasty: bool = False) -> None:
        with self._lock:
            self.answers[f"{kind} {answer.status or 'without an answer'}"] += 1
            if answer.status >= 400 and answer.status != 404:
                self.refusals[f"{answer.status} {_reason(answer)}"] += 1
            if not is_hasty:
                self.slowest = max(self.slowest, answer.seconds)
        if not is_hasty and answer.status == 0 and "Timeout" in answer.text:
            self.fault(f"a {kind} by nginx has no answer after {answer.seconds:.0f} s")


def submitted(client: Client, marked: Marked, content: bytes) -> Answer:
    """Send a profile once. Every other profile that doesn't state its time is sent without any."""
    if marked.undated and marked.number % 2:
        query = {"service": marked.service, "type": marked.type, "labels": marked.labels}
        return client.ask("POST", "/v1/submit", Server.submit_key, query, content)
    return client.submit(marked, content)


def retry_seconds(headers: httpx.Headers) -> float:
    """Return after how long a client tries again: what the answer says, but not as long as clients would."""
    said = headers.get("Retry-After", "0.5")
    return min(float(said), _MOST_RETRY_SECONDS)


def _reason(answer: Answer) -> str:
    """Return the beginning of the detail of a refusal, without numbers and names."""
    detail = re.search(r'"(?:detail|error|message)":"([^":;]*)', answer.text)
    title = re.search(r"<title>(?:\d+ )?([^<]*)", answer.text)
    found = detail or title
    return found[1][:60].strip() if found else answer.text[:60]
