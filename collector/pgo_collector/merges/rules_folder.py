"""The folder of rules: a file for each service that has any, read for every merge that is served."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import structlog
from pprof_merge import Rules, RulesInvalid, parse_rules

from pgo_collector.errors import RulesUnreadable

_SUFFIX = ".rules"
_log = structlog.get_logger()


class RulesFolder:
    """Rules by service. Profiles are stored as they come: rules change what is served, and can be undone.

    So a file that is broken costs no profile. Merges are refused until it is mended, rather than served
    without the rules: nobody would notice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, service: str) -> Rules:
        """The rules of a service, none if it has no file. Raises RulesUnreadable: which file, which line."""
        path = self._path / f"{service}{_SUFFIX}"
        try:
            return self.read(path)
        except RulesUnreadable as error:
            reason = str(error).removeprefix(f"rules file {path.name}: ")
            _log.error("rules unreadable, no merge until they are mended", file=str(path), reason=reason)
            raise

    def files(self) -> list[Path]:
        """The files that there are."""
        return sorted(self._path.glob(f"*{_SUFFIX}"))

    def read(self, path: Path) -> Rules:
        """The rules of a file, none if it isn't there. Raises RulesUnreadable: which file, which line."""
        try:
            return parse_rules(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return Rules()
        except OSError as error:
            raise RulesUnreadable(f"rules file {path.name}: {error.strerror}") from error
        except RulesInvalid as error:
            raise RulesUnreadable(f"rules file {path.name}: {error}") from error

    def check(self) -> None:
        """Logs of each file that it is taken, or that it is broken: at a start, before anyone needs it."""
        for path in self.files():
            with suppress(RulesUnreadable):
                rules = self.of(path.name.removesuffix(_SUFFIX))
                _log.info("rules read", file=str(path), count=len(rules))
