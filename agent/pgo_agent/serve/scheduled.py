"""The sampler of the schedule: it waits for its turn, and for a backend that works."""

from __future__ import annotations

from collections.abc import Collection
from threading import Event

from pgo_agent.backends.backend import Backend
from pgo_agent.backends.choice import choose
from pgo_agent.process_sampler import ProcessSampler
from pgo_agent.serve.turn import Turn


class ScheduledSampler:
    """Samples by the first of the `candidates` that works, and looks for one again after that has failed."""

    def __init__(
        self, turn: Turn, candidates: Collection[Backend], names: tuple[str, ...], frequency: int
    ) -> None:
        self._turn, self._candidates = turn, candidates
        self._names, self._frequency = names, frequency
        self._backend: Backend | None = None

    def sample(self, duration: float, until: Event) -> bytes:
        """See Sampler. Raises as ProcessSampler, NoBackend, and Stopped if `until` came before its turn."""
        with self._turn.waited_for(until) as running:
            backend, self._backend = self._backend or choose(self._candidates), None
            profile = ProcessSampler(backend, self._names, self._frequency).sample(duration, running.ended)
            self._backend = backend
            return profile
