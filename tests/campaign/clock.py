"""A clock that jumps, by libfaketime, for all processes that run with its `environment`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tests.preloads import build_preload

_TRUE_SLEEP: Final = Path(__file__).with_name("true_sleep.c")
_LIBRARY: Final = "faketime/libfaketimeMT.so.1"
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (where libfaketime leaves files of killed processes)
_DAY_SECONDS: Final = 86_400


class JumpingClock:
    """A clock that is off by `days`; `jump` changes it while processes run.

    Only the time of day jumps, as when somebody sets it; the monotonic clock of timeouts goes on.
    """

    def __init__(self, file: Path) -> None:
        """Keep the difference in `file`. Raises FileNotFoundError if libfaketime or gcc isn't installed."""
        libraries = sorted(Path("/usr/lib").glob(f"*/{_LIBRARY}"))
        if not libraries:
            raise FileNotFoundError(f"{_LIBRARY} isn't installed: Debian's package faketime")
        self._file = file
        self.days = 0.0
        self.environment = {
            "LD_PRELOAD": f"{build_preload(_TRUE_SLEEP, file.parent)} {libraries[0]}",
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",  # seconds; reading the file on each call costs too much
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # with it, waits for the interpreter's lock return at once
            "NO_FAKE_STAT": "1",
        }
        self.jump(0)

    def jump(self, days: float) -> None:
        """Set the difference to `days` from now on."""
        part = self._file.with_suffix(".part")
        part.write_text(f"{days * _DAY_SECONDS:+.0f}\n")
        part.replace(self._file)
        self.days = days

    @staticmethod
    def forget(pid: int) -> None:
        """Remove what a killed process left, which would stop the next process of the same id."""
        for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
            (_SHARED_MEMORY / name).unlink(missing_ok=True)


def has_faketime() -> bool:
    """Return whether libfaketime is installed."""
    return os.name == "posix" and any(Path("/usr/lib").glob(f"*/{_LIBRARY}"))
