"""The folder of rules files: one for each service that has rules, read for every merge."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import structlog
from pprof_merge import Rules, RulesInvalid, parse_rules

from pgo_collector.errors import RulesUnreadable

_SUFFIX = ".rules"
_log = structlog.get_logger()


class RulesFolder:
    """The rules of each service. Rules change merges, not stored profiles, so they can be undone.

    A malformed file costs no profile. Merges are refused until it is corrected: if they were served without
    the rules, nobody would notice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, service: str) -> Rules:
        """Return the rules of a service, empty if it has no file.

        Raises RulesUnreadable, which names the file and the line.
        """
        path = self._path / f"{service}{_SUFFIX}"
        try:
            return self.read(path)
        except RulesUnreadable as error:
            reason = str(error).removeprefix(f"rules file {path.name}: ")
            _log.error("rules unreadable", file=str(path), reason=reason)
            raise

    def files(self) -> list[Path]:
        """Return the rules files, sorted by name."""
        return sorted(self._path.glob(f"*{_SUFFIX}"))

    def read(self, path: Path) -> Rules:
        """Return the rules of a file, empty if it is missing.

        Raises RulesUnreadable, which names the file and the line.
        """
        try:
            return parse_rules(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return Rules()
        except OSError as error:
            raise RulesUnreadable(f"rules file {path.name}: {error.strerror}") from error
        except RulesInvalid as error:
            raise RulesUnreadable(f"rules file {path.name}: {error}") from error

    def check(self) -> None:
        """Log for each file whether it can be read. Called at a start, before a merge needs the rules."""
        for path in self.files():
            with suppress(RulesUnreadable):
                rules = self.of(path.name.removesuffix(_SUFFIX))
                _log.info("rules read", file=str(path), count=len(rules))
