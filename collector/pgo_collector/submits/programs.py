"""Programs that are uploaded, by whatever protocol: from a request's body to the store."""

from __future__ import annotations

import structlog
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from pgo_collector.engine.binaries import BinaryFacts
from pgo_collector.engine.renditions import StoredBinary
from pgo_collector.errors import NoSuchBinary
from pgo_collector.http.auth import context_of
from pgo_collector.settings import Settings
from pgo_collector.store.binaries import Binaries
from pgo_collector.store.store import not_stored
from pgo_collector.submits.body import BodyBound, BodyReader
from pgo_collector.submits.submits import Quotas

_EXPECTED = "the ELF program that is profiled, with its symbols or debug lines, or its separate debug file"
_log = structlog.get_logger()


class ProgramUploads:
    """Takes programs: a body goes to a file as it arrives, is read by a worker, and then stored durably."""

    def __init__(self, binaries: Binaries, quotas: Quotas, bodies: BodyReader, settings: Settings) -> None:
        self.binaries = binaries
        self._quotas = quotas
        self._bodies = bodies
        self._bound = BodyBound(settings.binary_bytes, "PGOF_BINARY_BYTES")

    async def check(self, service: str) -> None:
        """Raise BinariesOff, or QuotaUsedUp, if no program of a service is taken now."""
        await self.binaries.check()
        await self._quotas.check(service)

    async def take(self, request: Request, service: str, build_id: str = "") -> BinaryFacts:
        """Store the program in the body of a request, which must have this build id if one is given.

        Raises what `check`, `BodyReader.read` and `Binaries.add` raise, and NotStored.
        """
        await self.check(service)
        async with self._bodies.read(request, self._bound, _EXPECTED, to_file=True) as body:
            context_of(request).body_bytes = body.size
            try:
                facts = await self.binaries.add(service, body.part, build_id)
            except (OSError, SQLAlchemyError) as error:
                raise not_stored("program", error) from error
        _log.info("program stored", service=service, build_id=facts.build_id, size=facts.size)
        return facts

    async def stored(self, service: str, build_id: str) -> StoredBinary:
        """Return the best program of a build of a service. Raises NoSuchBinary and NotStored."""
        if (found := await self.binaries.find(service, build_id)) is None:
            raise NoSuchBinary.of(build_id, "upload it first")
        return found
