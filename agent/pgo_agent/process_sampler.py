"""The sampler of other processes: a backend's recordings, as pprof."""

from __future__ import annotations

from threading import Event

from pgo_agent.backends.backend import Backend, Wanted
from pgo_agent.backends.choice import recorded
from pgo_agent.errors import NoSamples
from pgo_agent.native.native_profile import native_profile
from pgo_agent.native.recording import Recording


class ProcessSampler:
    """Samples the processes of these names, each thread `frequency` times in a second of CPU time.

    Raises ValueError if no process can have such a name, or the frequency isn't 1 to 1000.
    """

    def __init__(self, backend: Backend, names: tuple[str, ...], frequency: int = 99) -> None:
        self._backend, self._wanted = backend, Wanted(names, frequency)

    def sample(self, duration: float, until: Event) -> bytes:
        """See Sampler. Raises as `record`, and ToolFailed if llvm-symbolizer is missing or fails."""
        return native_profile(self.record(duration, until))

    def record(self, duration: float, until: Event) -> Recording:
        """What was seen. Raises ToolFailed and NotReadable as backends do, and NoSamples."""
        recording = recorded(self._backend, self._wanted, duration, until)
        if not recording.stacks:
            raise NoSamples(self._wanted.names)
        return recording
