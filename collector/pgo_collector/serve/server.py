"""The server process: it listens, then opens everything in order, serves, and closes in reverse order.

What it opens is imported when it listens, so that `/healthz` and `/readyz` are answered first: see `opened`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvicorn
import uvloop
from pprof_merge import ENGINE
from pprof_merge.heap import share_heap
from starlette.types import ASGIApp

from pgo_collector.connections.connection import Connection, State
from pgo_collector.connections.connection_pool import ConnectionLimits, ConnectionPool, raise_descriptor_limit
from pgo_collector.http.keys import KeyFile, Keys, append_line, new_key
from pgo_collector.http.session_secret import made_session_secret, read_session_secret
from pgo_collector.metrics.metrics import OFF, REFUSED, Metrics
from pgo_collector.serve.listener import BACKLOG, Listener, address_of, grpc_listener, listen
from pgo_collector.serve.root_path import BelowRootPath
from pgo_collector.serve.start_gate import StartGate
from pgo_collector.settings import Settings
from pgo_collector.store.folder import DataFolder

if TYPE_CHECKING:
    from pgo_collector.serve.first_look import Opening

# Time to decode and store bodies that have arrived, when the server stops.
_GRACE_SECONDS = 15
# Time for requests that are cancelled then. One may wait for a transaction that it has begun.
_ENDING_SECONDS = 5
_log = structlog.get_logger()


def serve(settings: Settings, first: Callable[[], Opening]) -> None:
    """Serve until SIGTERM or SIGINT; `first` returns what to show at the start.

    Raises CannotStart, StorageFails and CatalogFails.
    """
    share_heap()
    uvloop.run(_serve(settings, first))


async def _serve(settings: Settings, first: Callable[[], Opening]) -> None:
    """Listen, then open the store, then let requests through to it, until a signal comes."""
    with DataFolder(settings.directory) as folder, listen(settings.bind_address) as listener:
        keys, secret = _keys(settings), _session_secret(settings, folder)
        gate, metrics = StartGate(), _metrics(settings)
        descriptors = raise_descriptor_limit() - (settings.grpc_connections if settings.grpc_address else 0)
        limits = ConnectionLimits.of(settings, descriptors, BACKLOG)
        connections = ConnectionPool(limits, partial(metrics.count, REFUSED))
        metrics.register_connections(connections)
        stopping = asyncio.Event()
        calls = grpc_listener(gate, settings, connections.turns)
        server = _Server(_server_config(gate, settings), connections, calls, stopping)
        serving = asyncio.create_task(server.serve([listener]))

        async def work() -> None:
            """Open the application, and pass requests to it until the server has stopped."""
            # In a thread, and not when this process starts: it takes half of the CPU time of a start.
            await asyncio.to_thread(import_module, "pgo_collector.serve.opened")
            from pgo_collector.serve.opened import log_findings, opened_app  # noqa: PLC0415 - see above

            gc.freeze()
            gc.enable()
            opening = first()
            async with opened_app(
                settings,
                folder,
                keys,
                secret,
                metrics=metrics,
                progress=gate.progress,
                stopping=stopping,
                first=opening,
            ) as (app, tokens):
                # Modules and routes live as long as the process; no collection need walk them, nor its end.
                gc.freeze()
                gate.open(app)
                # New connections needn't pass the gate.
                server.config.loaded_app = BelowRootPath.around(app, settings)
                opening.print(settings, f"http://{address_of(listener)}", tokens)
                _log.info("serving")
                checking = asyncio.create_task(asyncio.to_thread(log_findings, settings))
                await asyncio.wait({serving})
                await asyncio.wait({checking})

        working = asyncio.create_task(work())
        await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
        if not gate.is_open:  # it stops before it is ready, or can't start
            working.cancel()
        gate.give_up()
        server.should_exit = True
        await asyncio.wait({serving, working})
        serving.result()
        with suppress(asyncio.CancelledError):
            working.result()


def _keys(settings: Settings) -> Keys:
    """Return the keys of the files, some of which may be made now. Raises KeysUnreadable and KeyMalformed."""
    if settings.makes_keys:
        for file in (settings.submit_auth_keys_file, settings.merge_auth_keys_file):
            if not file.exists():
                append_line(file, new_key())
    keys = Keys(
        submit=KeyFile(settings.submit_auth_keys_file, "submit"),
        merge=KeyFile(settings.merge_auth_keys_file, "merge"),
        metrics=KeyFile(settings.metrics_auth_keys_file or Path(os.devnull)),  # an empty file
    )
    keys.submit.others, keys.merge.others = (keys.merge,), (keys.submit,)
    return keys


def _session_secret(settings: Settings, folder: DataFolder) -> bytes:
    """Return the secret that all collectors have, or else this one's own. Raises SecretUnusable."""
    if settings.session_secret_file is None:
        return made_session_secret(folder.session_secret)
    return read_session_secret(settings.session_secret_file)


def _metrics(settings: Settings) -> Metrics:
    if not settings.has_metrics:
        return OFF
    from pgo_collector.metrics.prometheus import PrometheusMetrics  # noqa: PLC0415 - others start without

    return PrometheusMetrics()


def _server_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        BelowRootPath.around(app, settings),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no route uses the client's address or scheme from a proxy
        backlog=BACKLOG,
        timeout_graceful_shutdown=ceil(settings.body_timeout) + _GRACE_SECONDS,
    )


class _Server(uvicorn.Server):
    """uvicorn's server, with a port `beside` it. It logs its address, and a signal only stops it.

    When it begins to stop, it sets `stopping`: what else would last ends then.
    """

    def __init__(
        self, config: uvicorn.Config, connections: ConnectionPool, beside: Listener, stopping: asyncio.Event
    ) -> None:
        super().__init__(config)
        self._beside = beside
        self._stopping = stopping
        self.server_state = self._state = State(connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            _log.info("listening", address=address_of(listener), engine=ENGINE)
        await self._beside.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.is_stopping = True
        self._stopping.set()
        grace = float(self.config.timeout_graceful_shutdown or 0)
        await asyncio.gather(super().shutdown(sockets), self._beside.stop(grace))
        if cancelled := {*self._state.tasks}:  # they need the store until they end
            await asyncio.wait(cancelled, timeout=_ENDING_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT. uvicorn's would raise the signal again, before the store is closed."""
        loop = asyncio.get_running_loop()
        stop = (signal.SIGTERM, signal.SIGINT)
        for name in stop:
            loop.add_signal_handler(name, self.handle_exit, name, None)
        try:
            yield
        finally:
            for name in stop:
                loop.remove_signal_handler(name)
