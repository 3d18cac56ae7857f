"""Turns of the event loop: connections parse for a few milliseconds in each, all of them together.

h11's time goes by the number of lines and chunks, of which one read of a connection may hold thousands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol

# How long all connections together parse in a turn, and each at a time.
_TURN_SECONDS = 0.005
_SLICE_SECONDS = 0.001


class Parsing(Protocol):
    """A connection that has more to parse."""

    def go_on(self) -> None:
        """Parse for another slice."""


class Turns:
    """The time that connections have in a turn, and the connections that wait for the next one."""

    def __init__(self) -> None:
        self._left, self._began = _TURN_SECONDS, 0.0
        self._waiting: deque[Parsing] = deque()
        self._is_due = False

    def begin(self) -> float:
        """Return when a connection that parses now has to stop, in seconds of `time.monotonic`.

        If the time of this turn is used up, that has passed.
        """
        self._began = monotonic()
        return self._began + min(self._left, _SLICE_SECONDS)

    def end(self) -> None:
        """Note that the connection parses no more in this turn."""
        self._left -= monotonic() - self._began

    def wait(self, connection: Parsing) -> None:
        """Have a connection go on in the next turn, after those that wait already."""
        self._waiting.append(connection)
        self._call()

    def _call(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._left, due = _TURN_SECONDS, len(self._waiting)
        try:
            while due and self._left > 0:
                due -= 1
                self._waiting.popleft().go_on()
        finally:
            self._is_due = False
            if self._waiting:
                self._call()
