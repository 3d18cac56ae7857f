"""Connections of the server, which lose no request when it stops.

uvicorn closes at once those on which it has nothing to do. On one that was just accepted a request may be on
its way, and a proxy can't send that again without knowing whether it was taken.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

_PATIENCE_SECONDS = 5.0


class State(ServerState):
    """What the connections of a server share: also whether it stops."""

    is_stopping = False


class Connection(HttpToolsProtocol):
    """A connection that is closed when its request is answered, or none comes."""

    def __init__(self, config: Any, server_state: State, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, server_state, *args, **kwargs)
        self._state = server_state
        self._is_arriving = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """As any; one that was accepted just before the stop is told of it too."""
        super().connection_made(transport)
        if self._state.is_stopping:
            self.shutdown()

    def on_message_begin(self) -> None:
        """A request begins, of which there may be more to come."""
        super().on_message_begin()
        self._is_arriving = True

    def on_headers_complete(self) -> None:
        """From here on uvicorn knows of the request."""
        super().on_headers_complete()
        self._is_arriving = False
        if self._state.is_stopping:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Closes it, but for a request that has begun, or is the first and awaited."""
        if self._is_arriving:
            self.loop.call_later(_PATIENCE_SECONDS, self._give_up)
        else:
            super().shutdown()

    def _give_up(self) -> None:
        if self._is_arriving and not self.transport.is_closing():
            self.transport.close()
