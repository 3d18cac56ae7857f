"""The fork server: a process without threads, which forks each worker in milliseconds.

What it has imported is in memory once, for it and all workers; and for the server, too, whose process forks
it when it starts. One that takes the place of another is a new interpreter: the server has threads by then.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing import util
from pathlib import Path
from select import select
from typing import Any, NoReturn

# A function that a child calls with its end of a socket, and further arguments.
Work = Callable[..., None]

# The exit code of a child if the fork server ended before it.
UNKNOWN = 255
# An order names a function, and its arguments are small.
_ORDER_BYTES = 1 << 16
_NUMBER = struct.Struct("=i")
_MOST_DESCRIPTORS = 1 << 20
_PROGRAM = """
import sys
sys.path[:] = {path!r}
from pgo_collector.workers.fork_server import import_engine, serve_orders
import_engine()
serve_orders({orders}, {alive})
"""


class Child:
    """A forked process, as seen by the process that asked for it."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self._ended = ended
        self._code: int | None = None

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.wait(0) is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> int | None:
        """Wait until it has ended; return its exit code, negative for a signal, or None if it still runs."""
        if self._code is None and select([self._ended], [], [], seconds)[0]:
            code = os.read(self._ended, _NUMBER.size)
            self._code = _NUMBER.unpack(code)[0] if code else UNKNOWN
            os.close(self._ended)
        return self._code


class ForkServer:
    """The fork server of this process. It ends with this process, and so do the children; when it is killed,
    children go on.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self._orders: socket.socket | None = None
        # A pipe to which nobody writes. Who reads from it waits until this process has ended.
        self._alive: tuple[int, ...] = ()
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Import the engine, and fork it from this process, which has no threads yet. It ends with the block,
        and so do its children.

        No garbage is collected until `serve` has imported everything, since that took a fifth of a start.
        """
        gc.disable()
        import_engine()
        gc.freeze()  # a collection would write to the pages of what has been imported
        self._start(_fork_server)
        try:
            yield
        finally:
            self._forget()
            for each in self._alive:
                os.close(each)
            self._alive = ()

    def fork(self, work: Work, end: socket.socket, *args: Any) -> Child:
        """Return a child that calls a function with a copy of this end of a socket, and small arguments.

        Starts the fork server if there is none. Raises OSError, or EOFError if it ends meanwhile: the next
        call starts another.
        """
        order = pickle.dumps((work, args))
        ended, ending = os.pipe()
        try:
            with self._lock:
                pid = self._ask(order, end.fileno(), ending)
        except BaseException:
            os.close(ended)
            raise
        finally:
            os.close(ending)
        return Child(pid, ended)

    def _ask(self, order: bytes, *descriptors: int) -> int:
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0]:  # it was killed
            self._forget()
        orders = self._orders or self._start(_start_program)
        try:
            socket.send_fds(orders, [order], descriptors)
            answer = orders.recv(_NUMBER.size)
        except ConnectionError:
            answer = b""
        if not answer:
            os.waitpid(self._forget(), 0)
            raise EOFError("the fork server has ended")
        return int(_NUMBER.unpack(answer)[0])

    def _start(self, start: Callable[[int, int], int]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._alive = self._alive or os.pipe()
        with theirs:
            self.pid = start(theirs.fileno(), self._alive[0])
        self._orders = ours
        atexit.register(ours.close)  # of a process that doesn't end it, such as a test's
        return ours

    def _forget(self) -> int:
        """Have it end, if it runs, and return its id."""
        pid, orders, self.pid, self._orders = self.pid, self._orders, None, None
        if orders is not None:
            orders.close()
        return pid or 0


FORK_SERVER = ForkServer()


def import_engine() -> None:
    """Import what the workers need, and NumPy without threads, which would compete with the workers."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Not before, since the last one imports this module.
    import pgo_collector.blobs.folder  # noqa: PLC0415
    import pgo_collector.engine.tasks  # noqa: PLC0415
    import pgo_collector.workers.process  # noqa: F401, PLC0415


def _fork_server(orders: int, alive: int) -> int:
    pid = os.fork()
    if not pid:
        _run(serve_orders, orders, alive)
    return pid


def _start_program(orders: int, alive: int) -> int:
    program = _PROGRAM.format(path=sys.path, orders=orders, alive=alive)
    return util.spawnv_passfds(os.fsencode(sys.executable), [sys.executable, "-c", program], [orders, alive])


def serve_orders(orders: int, alive: int) -> None:
    """Be the fork server, until the process that started it ends. Ctrl-C is left to that process."""
    _name("pgo-forks")
    _close_all_but(orders, alive)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    endings: dict[int, int] = {}  # of the children by their ids

    def reap(*_: object) -> None:
        for child in [*endings]:
            try:
                ended, status = os.waitpid(child, os.WNOHANG)
            except ChildProcessError:  # another signal has interrupted this function, and its call was told
                continue
            if ended:
                with suppress(BrokenPipeError):
                    os.write(endings[child], _NUMBER.pack(os.waitstatus_to_exitcode(status)))
                os.close(endings.pop(child))

    signal.signal(signal.SIGCHLD, reap)
    with socket.socket(fileno=orders) as channel:
        while True:
            order, descriptors, _, _ = socket.recv_fds(channel, _ORDER_BYTES, 2)
            if not order:
                return
            end, ending = descriptors
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until the child is in `endings`
            child = os.fork()
            if not child:
                _run(_work, order, end, alive)
            os.close(end)
            endings[child] = ending
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            channel.send(_NUMBER.pack(child))


def _work(order: bytes, end: int, alive: int) -> None:
    """Do what an order says, in a child. It ends when the process that ordered it has ended."""
    _name("pgo-worker")
    _close_all_but(end, alive)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    threading.Thread(target=_end_with_server, args=(alive,), name="parent", daemon=True).start()
    gc.enable()
    work, args = pickle.loads(order)  # noqa: S301 - from our own process
    work(socket.socket(fileno=end), *args)


def _end_with_server(alive: int) -> NoReturn:
    os.read(alive, 1)
    os._exit(1)


def _run(call: Callable[..., None], *args: Any) -> NoReturn:
    """End this forked process with a call, and leave alone what its parent has to close and to write."""
    code = 1
    try:
        call(*args)
        code = 0
    except BaseException:  # noqa: BLE001 - there is no caller
        traceback.print_exc()
    finally:
        os._exit(code)


def _close_all_but(*kept: int) -> None:
    """Close all files but these and the standard ones, of which the input becomes empty."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for low, high in pairwise([2, *sorted(kept), _MOST_DESCRIPTORS]):
        os.closerange(low + 1, high)


def _name(name: str) -> None:
    """Give this process a name that ps and top show."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name, encoding="ascii")
