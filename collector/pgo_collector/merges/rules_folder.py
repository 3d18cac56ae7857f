"""The folder of rules files: one for each service that has rules, looked at for every merge."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import structlog
from pprof_merge.analysis import Rules, RulesInvalid, parse_rules

from pgo_collector.errors import RulesUnreadable
from pgo_collector.model.services import services_of

_SUFFIX = ".rules"
# A file that was changed less than this before it was read may change again with the same times, since file
# systems round them, some to two seconds.
_SETTLED_NANOS = 3 * 10**9
_log = structlog.get_logger()


class RulesFolder:
    """The rules of each service. Rules change merges, not stored profiles, so they can be undone.

    A malformed file costs no profile. Merges are refused until it is corrected: if they were served without
    the rules, nobody would notice. A file is read again when it has changed, and while it is so new that the
    next change might not show.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # By service: the file's inode, size, and times of modification and change in ns; and its rules.
        self._read: dict[str, tuple[tuple[int, int, int, int], Rules]] = {}

    def of(self, service: str) -> Rules:
        """Return the rules of a service, empty if it has no file; of several services, those of all.

        Raises RulesUnreadable, which names the file and the line.
        """
        if len(services := services_of(service)) > 1:
            every = [self.of(each) for each in services]
            return Rules(
                tuple(pattern for rules in every for pattern in rules.drop),
                tuple(pattern for rules in every for pattern in rules.noinline),
            )
        path, now_nanos = self._path / f"{service}{_SUFFIX}", time.time_ns()
        identity = None
        try:
            found = path.stat()
            identity = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        except FileNotFoundError:
            self._read.pop(service, None)
            return Rules()
        except OSError:
            pass  # `read` says what is wrong
        match self._read.get(service):
            case [known, rules] if known == identity:
                return rules
        self._read.pop(service, None)
        try:
            rules = self.read(path)
        except RulesUnreadable as error:
            reason = str(error).removeprefix(f"rules file {path.name}: ")
            _log.error("rules unreadable", file=str(path), reason=reason)
            raise
        if identity is not None and max(identity[2:]) < now_nanos - _SETTLED_NANOS:
            self._read[service] = identity, rules
        return rules

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
