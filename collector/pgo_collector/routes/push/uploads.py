"""Uploads by agents: whose a program is that names no service, and whether it is wanted.

Parca's and Pyroscope's agents ask about each program that they see, by its build id, and upload those that
the answer says are wanted. What is stored decides. This process alone knows what is on its way and what it
has just refused: that spares it the same upload from each host at once, and one that is refused again and
again. So a collector that knows nothing of it takes the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from starlette.requests import Request

from pgo_collector.engine.binaries import BinaryFacts
from pgo_collector.errors import (
    BinariesOff,
    BinaryThere,
    BinaryUnreadable,
    BinaryUnwanted,
    BodyTooLarge,
    KeyOutOfScope,
    TaskOutOfMemory,
    UploadExpected,
)
from pgo_collector.http.auth import context_of
from pgo_collector.store.binaries import SHARED
from pgo_collector.submits.programs import ProgramUploads

# What a client is told that asks about a program that isn't stored.
WANTED = "no program with this build id is stored, so send it"
# By this text Parca's agent and Alloy know that they should ask again after 5 minutes. After any other reason
# they ask no more until they are started again.
_EXPECTED = "A previous upload is still in-progress and not stale yet (only stale uploads can be retried)."
NO_BUILD_ID = (
    "profiles name programs by the GNU build id, in hex, which this one doesn't have: link it with"
    " -Wl,--build-id, and a Go program with -ldflags=-B=gobuildid"
)
_BUILD_ID = re.compile(r"[0-9a-f]{2,128}")
# Why an upload isn't wanted; a client is told so, and sends nothing.
_UNWANTED = (BinariesOff, BinaryThere, BinaryUnwanted, UploadExpected)
# Refusals of an upload that another attempt would only repeat.
_FINAL = (BinaryUnreadable, BodyTooLarge, TaskOutOfMemory)
# How long an upload is waited for once it was said to be wanted, and how long a refused one isn't wanted.
_EXPECTED_SECONDS, _REFUSED_SECONDS = 60.0, 3600.0
_MOST_REMEMBERED = 1000


def service_of_key(request: Request) -> str:
    """Return the service of programs that a key uploads without naming one. Raises KeyOutOfScope.

    It is the only service that the key is for. With a key for all services, programs are shared by them all.
    """
    key = context_of(request).caller
    if key.scope.is_every:
        return SHARED
    if key.scope.only_service is None:
        raise KeyOutOfScope(
            f"this key, {key.name or key.fingerprint}, is for some services, and a program is uploaded here"
            " for one or for all: use a key for one service, or for all"
        )
    return key.scope.only_service


class AgentUploads:
    """Uploads by the agents of other systems."""

    def __init__(self, programs: ProgramUploads) -> None:
        self.programs = programs
        self._expected = _Remembered()
        self._refused = _Remembered()

    async def check(self, service: str, build_id: str, *, is_forced: bool = False) -> None:
        """Raise BinariesOff, BinaryThere, BinaryUnwanted or UploadExpected unless an upload is wanted.

        One that `is_forced` is wanted even then: it may have more than what is stored. Raises NotStored, too.
        """
        await self.programs.binaries.check()
        if not _BUILD_ID.fullmatch(build_id):
            raise BinaryUnwanted(NO_BUILD_ID)
        if is_forced:
            return
        if await self.programs.binaries.find(service, build_id) is not None:
            raise BinaryThere("a program with this build id is stored, and isn't replaced")
        if reason := self._refused.text(service, build_id):
            raise BinaryUnwanted(reason)
        if reason := self._expected.text(service, build_id):
            raise UploadExpected(reason)

    async def reason(self, service: str, build_id: str, *, is_forced: bool = False) -> str:
        """Return why an upload isn't wanted; "" if it is. Raises NotStored."""
        try:
            await self.check(service, build_id, is_forced=is_forced)
        except _UNWANTED as error:
            return str(error)
        return ""

    def expect(self, service: str, build_id: str) -> None:
        """Have all others wait a while for this upload."""
        self._expected.add(service, build_id, _EXPECTED_SECONDS, _EXPECTED)

    async def take(self, request: Request, service: str, build_id: str) -> BinaryFacts:
        """Store the program of this build id in the body of a request. Raises as `ProgramUploads.take`."""
        with self._arriving(service, build_id):
            try:
                return await self.programs.take(request, service, build_id)
            except _FINAL as error:
                self._refused.add(service, build_id, _REFUSED_SECONDS, str(error))
                raise

    @contextmanager
    def _arriving(self, service: str, build_id: str) -> Iterator[None]:
        """Have all others wait while an upload arrives; one that has broken off may come again at once."""
        self._expected.add(service, build_id, inf, _EXPECTED)
        try:
            yield
        finally:
            self._expected.remove(service, build_id)


class _Remembered:
    """Keeps what is said of uploads for a while; of many, it forgets what was said first."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], tuple[float, str]] = {}

    def add(self, service: str, build_id: str, seconds: float, text: str) -> None:
        self.remove(service, build_id)
        if len(self._texts) >= _MOST_REMEMBERED:
            del self._texts[next(iter(self._texts))]
        self._texts[service, build_id] = monotonic() + seconds, text

    def remove(self, service: str, build_id: str) -> None:
        self._texts.pop((service, build_id), None)

    def text(self, service: str, build_id: str) -> str:
        """Return what is said of an upload; "" if nothing is."""
        until, text = self._texts.get((service, build_id), (0.0, ""))
        return text if until > monotonic() else ""
