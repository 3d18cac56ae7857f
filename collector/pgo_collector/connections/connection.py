"""One connection of the server: HTTP/1.1 by h11 and uvicorn, with bounds on size and time.

A request that is malformed, too large or too late is refused here, before the application runs. The answer
has problem details. Then the server drops what still arrives for a while, since closing a connection with
unread data resets it, and the client may lose the answer.

A server that stops loses no request. uvicorn closes connections without a request at once. But on one that
was just accepted, a request may be on its way, and a proxy can't repeat it without knowing whether it was
handled. So this module waits for that request.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pgo_collector.connections.connection_pool import (
    Admission,
    ConnectionPool,
    Phase,
    network_of,
)
from pgo_collector.connections.requests import Requests

# How long a stopping server waits for the first request of a connection.
_FIRST_REQUEST_SECONDS = 5.0
# A client that neither sends nor reads for so long loses its connection when another client needs it.
_STUCK_SECONDS = 5.0
_MOST_DROPPED_BYTES = 64 << 20
_BOTH_DONE = {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}


class State(ServerState):
    """State that the connections of a server share: the pool, and whether the server is stopping."""

    def __init__(self, pool: ConnectionPool) -> None:
        super().__init__()
        self.pool = pool
        self.is_stopping = False


class Connection(H11Protocol):
    """A connection: uvicorn's, with bounds, and with a phase in the pool of all connections."""

    def __init__(self, config: Any, server_state: State, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, server_state, *args, **kwargs)
        self.conn = self._requests = Requests(server_state.pool.limits)
        self.phase = Phase.HEAD
        self.address = ""
        self._state = server_state
        self._pool = server_state.pool
        self._received_at = 0.0
        self._dropped_bytes = 0
        self._is_lost = False
        self._is_watched = False
        self._has_resumed = False
        self._is_unread = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Add the connection to the pool, or refuse it. If the server is already stopping, shut it down."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._requests)
        self.address = network_of(self.client[0] if self.client else "")
        match self._pool.admit(self):
            case Admission.HEALTH_CHECK:
                self._requests.is_for_health_checks = True
            case Admission.TOO_MANY_OF_ADDRESS:
                most = self._pool.limits.connections_per_address
                self._refuse(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"more than {most:g} connections from one address (PGOF_MAX_CONNECTIONS_PER_ADDRESS)",
                    "connections_per_address",
                )
        if self._state.is_stopping:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the pool."""
        self._is_lost = True
        self._pool.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle what the client sent; drop it if the connection is closing."""
        self._received_at = self.loop.time()
        if self.phase is Phase.CLOSING:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _MOST_DROPPED_BYTES:
                self.transport.abort()
            return
        if self.phase is Phase.IDLE:
            self._pool.enter(self, Phase.HEAD)
        super().data_received(data)
        if self.phase is Phase.SERVED and self.cycle.body and self.cycle.more_body:
            # Wait until the application has read it: no more than one read is then held outside its bounds,
            # and one more of the next request if this one is here.
            self.flow.pause_reading()

    def handle_events(self) -> None:
        """Handle what has arrived, and note the phase that the connection is then in.

        What there is no time for in this turn of the loop waits for another one.
        """
        if not self._requests.is_at_rest:
            turns = self._pool.turns
            self._requests.stop = turns.begin()
            super().handle_events()
            turns.end()
            if self._requests.is_cut:
                turns.wait(self)
        if self.phase is Phase.CLOSING:
            return
        if self.cycle is not None and self.cycle.response_complete:
            self._wait()
        elif self.cycle is not None and self.phase is not Phase.SERVED:
            self._serve()
        if self.phase is Phase.HEAD and self._requests.has_unfinished_head:
            self._pool.note_head(self, self._requests.n_unread)

    def go_on(self) -> None:
        """See Parsing."""
        if self.phase is Phase.CLOSING or self.transport.is_closing():
            return
        self.handle_events()
        if self.phase is not Phase.SERVED or not self.cycle.body:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """Go on with the next request if it has arrived. The pool bounds the wait for one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._pool.enter(self, Phase.LEAVING)
            return
        if self._requests.states == _BOTH_DONE:
            self._requests.start_next_cycle()
            self.handle_events()
        if self.phase is not Phase.CLOSING and self.cycle.response_complete:
            self._wait()
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse the request that the parser has refused, with the parser's reason."""
        del msg  # uvicorn's, which gives none
        fault = self._requests.fault
        self._refuse(HTTPStatus(fault.error_status_hint), str(fault), fault.reason)

    def shutdown(self) -> None:
        """Close the connection for a stop: at once if idle, else after its request or a wait for one."""
        match self.phase:
            case Phase.HEAD:
                self.loop.call_later(_FIRST_REQUEST_SECONDS, self._give_up)
            case Phase.CLOSING:
                self.transport.close()
            case Phase.SERVED if not self.cycle.response_complete:
                self._close_after_answer()
            case _:
                super().shutdown()

    def pause_writing(self) -> None:
        """Have the application wait until the client has read; close the connection if it stops reading."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Have the application go on."""
        super().resume_writing()
        self._has_resumed = True

    def is_stuck(self) -> bool:
        """See PooledConnection."""
        if self._is_unread:
            return True
        if self.phase is not Phase.SERVED or self._requests.their_state is not h11.SEND_BODY:
            return False
        is_silent = self.loop.time() > self._received_at + _STUCK_SECONDS and not self.flow.read_paused
        return is_silent or self.cycle.response_started

    def expire(self) -> None:
        """See PooledConnection."""
        if self.phase is Phase.HEAD and self._requests.has_begun and not self._requests.is_for_health_checks:
            seconds = self._pool.limits.head_seconds
            detail = (
                f"the head of the request took longer than {seconds:g} seconds (PGOF_BODY_TIMEOUT or"
                " PGOF_HEAD_TIMEOUT)"
            )
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, detail, "head_timeout")
        elif self.phase is Phase.LEAVING:
            self._watch_reader()
        else:
            self.transport.abort()

    def evict(self) -> None:
        """See PooledConnection."""
        self.transport.abort()

    def refuse_head(self) -> None:
        """See PooledConnection."""
        most = self._pool.limits.heads_bytes
        detail = (
            f"unfinished heads of requests use {most:,} bytes (a quarter of PGOF_BODY_MEMORY_BYTES, which"
            " follows PGOF_MEMORY_MEGABYTES)"
        )
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{detail}; send the request again", "heads")

    def _should_upgrade(self) -> bool:
        """Return False: a request to upgrade is answered in HTTP/1.1, as RFC 9110 (7.8) allows."""
        return False

    def _serve(self) -> None:
        self._pool.enter(self, Phase.SERVED)
        if self._state.is_stopping or self._requests.is_for_health_checks:
            self._close_after_answer()

    def _wait(self) -> None:
        """Wait for the next request, or for the rest of the last body, for which a head's time is allowed."""
        is_idle = self._requests.their_state is h11.IDLE and not self._requests.has_begun
        phase = Phase.IDLE if is_idle else Phase.HEAD
        if self.phase is not phase:
            self._pool.enter(self, phase)

    def _close_after_answer(self) -> None:
        self.cycle.keep_alive = False
        if not self.cycle.response_started and CLOSE_HEADER not in self.cycle.default_headers:
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE_HEADER]

    def _give_up(self) -> None:
        if self.phase is Phase.HEAD and not self.transport.is_closing():
            self.transport.close()

    def _watch_reader(self) -> None:
        if not self._is_watched:
            self._is_watched, self._has_resumed = True, False
            unsent, seconds = self.transport.get_write_buffer_size(), self._pool.limits.answer_seconds
            self.loop.call_later(_STUCK_SECONDS, self._check_reader, unsent, self.loop.time() + seconds)

    def _check_reader(self, unsent: int, ends: float) -> None:
        """Close the connection if the client has read nothing by `ends`, in seconds of the loop's clock."""
        now, left = self.loop.time(), 0 if self._is_lost else self.transport.get_write_buffer_size()
        self._is_watched = self._is_unread = False
        if not left:
            return
        if left < unsent or self._has_resumed:
            self._watch_reader()
        elif now < ends:
            self._is_watched = self._is_unread = True
            seconds = min(_STUCK_SECONDS, ends - now)
            self.loop.call_later(seconds, self._check_reader, left, ends)
        else:
            self._pool.count_refusal("answer_timeout")
            self.transport.abort()

    def _refuse(self, status: HTTPStatus, detail: str, reason: str) -> None:
        """Answer with problem details, and close the connection once the client has closed it."""
        self._pool.count_refusal(reason)
        self._pool.enter(self, Phase.CLOSING)
        is_too_late = False
        if self.cycle is not None and not self.cycle.response_complete:  # the fault is in the request's body
            is_too_late = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if is_too_late or self._requests.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.close()
            return
        self.transport.write(self._requests.refusal(status, detail, self.server_state.default_headers))
        self.flow.resume_reading()
        self.transport.write_eof()


class _Flow(FlowControl):
    """uvicorn's flow control, except that it reads nothing while what has arrived may not be parsed yet."""

    def __init__(self, transport: asyncio.Transport, requests: Requests) -> None:
        super().__init__(transport)
        self._requests = requests

    def pause_reading(self) -> None:
        """Stop reading, even if uvicorn has resumed the transport without its flow control."""
        self.read_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless more has arrived: the application asks for more of its own request alone."""
        if not self._requests.is_paused:
            super().resume_reading()
