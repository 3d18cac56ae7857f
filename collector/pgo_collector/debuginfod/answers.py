"""Answers of debuginfod servers, in the store: which build ids they aren't asked for again yet.

All collectors and restarts share it, as one object beside the programs. It is a cache: without it, servers
are asked once more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pgo_collector.blobs.storage import Storage
from pgo_collector.model.debuginfod_servers import DebuginfodServer, is_build_id

# found: stored. missing: no server has it. unusable: a server's file is of no use. failed: a server, or this
# collector, failed.
Outcome = Literal["found", "missing", "unusable", "failed"]

_HOUR, _DAY = 3600, 86_400
# A file that is missing may be on its way: it is asked for again after this, then after twice as long.
_FIRST_PAUSE = 600
# Beside the folders of services, none of which can have this name.
_NAME = "_debuginfod/answers.json"


class _Answer(NamedTuple):
    """When a build id was asked for, when it may be asked for again, and how often in vain before.

    Times are in seconds since 1970.
    """

    asked: int
    again: int
    tries: int


class Answers:
    """The answers of these servers. At most `per_hour` build ids are asked for in an hour.

    That bounds the memory, too: an answer is forgotten a day after the build id may be asked for again.
    """

    def __init__(self, storage: Storage, servers: Sequence[DebuginfodServer], per_hour: int) -> None:
        self._storage = storage
        self._per_hour = per_hour
        # Other servers may have other files.
        self._servers = hashlib.sha256("\n".join(server.url for server in servers).encode()).hexdigest()
        self._answers: dict[str, _Answer] = {}
        # When build ids were asked for within the last hour.
        self._times: list[int] = []

    def load(self, now: int) -> None:
        """Read what this or another collector has stored. Blocks; raises OSError."""
        try:
            content = self._storage.read(_NAME)
        except FileNotFoundError:
            content = b""
        self._answers = self._parsed(content, now)
        self._times = sorted(answer.asked for answer in self._answers.values())

    def save(self, now: int) -> None:
        """Store the answers. Blocks; raises OSError."""
        self._answers = {
            build_id: answer for build_id, answer in self._answers.items() if now < answer.again + _DAY
        }
        stored = {"servers": self._servers, "answers": self._answers}
        self._storage.replace(_NAME, json.dumps(stored, separators=(",", ":")).encode())

    def left(self, now: int) -> int:
        """Return how many build ids may be asked for now."""
        self._times = [asked for asked in self._times if now - _HOUR < asked <= now]
        return max(self._per_hour - len(self._times), 0)

    def is_due(self, build_id: str, now: int) -> bool:
        """Return whether servers may be asked for a build id."""
        answer = self._answers.get(build_id)
        return answer is None or not answer.asked <= now < answer.again

    def note(self, build_id: str, outcome: Outcome, now: int) -> None:
        """Note what came of the question for a build id."""
        before = self._answers.get(build_id)
        tries, pause = 0, _DAY
        if outcome in {"missing", "failed"}:
            tries = before.tries + 1 if before else 1
            pause = min(_FIRST_PAUSE << min(tries - 1, 10), _DAY)
        self._answers[build_id] = _Answer(now, now + pause, tries)
        self._times.append(now)

    def _parsed(self, content: bytes, now: int) -> dict[str, _Answer]:
        """Return the answers in an object's content; none if it is damaged, or of other servers."""
        try:
            stored = json.loads(content or b"{}")
            if stored.get("servers") != self._servers:
                return {}
            found = {
                build_id: _Answer(*map(int, each))
                for build_id, each in stored["answers"].items()
                if is_build_id(build_id)
            }
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
            return {}
        return {build_id: answer for build_id, answer in found.items() if answer.asked <= now}
