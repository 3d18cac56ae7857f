"""A service of a test's own, on a collector that other tests use, too."""

from __future__ import annotations

from pathlib import Path

from tests.server import LogLine, Server


class OwnService(Server):
    """A running collector as a test sees it that stores profiles of one service alone.

    What names no service is for this one. Its log begins here, and its blobs are those of the service. The
    settings, the data folder and the process are those of `running`, for which others wait.
    """

    def __init__(self, running: Server, service: str) -> None:
        vars(self).update({name: value for name, value in vars(running).items() if name != "log"})
        self.service = service
        self.query = {"service": service}
        self._running = running
        running.events("")  # what others did is in the log now
        self._begin = len(running.log)

    @property
    def log(self) -> list[LogLine]:  # type: ignore[override]  # only the running server adds to it
        """Return the lines since the test began."""
        return self._running.log[self._begin :]

    def start(self) -> None:
        """Raise an error: the server is not the test's own."""
        raise NotImplementedError

    def stop(self) -> int:
        """Raise an error: others use the server."""
        raise NotImplementedError

    def kill(self) -> None:
        """Raise an error: others use the server."""
        raise NotImplementedError

    def blobs(self, suffix: str = ".pb.gz") -> list[Path]:
        """Return the stored blobs of the service, or objects whose names end like this, sorted."""
        return [path for path in super().blobs(suffix) if f"/{self.service}/" in str(path)]
