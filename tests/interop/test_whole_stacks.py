"""Stacks of programs without frame pointers: those that they say they have, and perf's, frame by frame."""

from __future__ import annotations

import http.client
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from pgo_agent.backends import Backend, Perf, SamplingRequest, backends
from pgo_agent.native import BY_CALL_FRAMES, Recording, Stack
from pgo_agent.native.perf_script import parse

from tests.agent.backends.test_backends import functions_in
from tests.agent.busy import running
from tests.agent.sampling import working
from tests.interop.listening import free_port, wait_until_answers
from tests.interop.postgres_cluster import MISSING, only_postgres, running_postgres

_SOURCES = Path(__file__).parents[1] / "agent" / "native"
_COMPILERS = {
    "cc": ("g++", "-O2", "-fomit-frame-pointer", "-pthread"),
    "rs": ("rustc", "-O", "-C", "force-frame-pointers=no"),
}
_SECONDS = 3.0
_FREQUENCY = 199
# What the agent has perf record, for `seconds`.
_RECORD = (
    *("perf", "record", "-q", "-e", "cpu-clock", "-a", "--buildid-mmap", "--no-bpf-event", "-m", "8M"),
    *("--call-graph", "dwarf,16384", "-F", str(_FREQUENCY), "-o", "-", "sleep", str(_SECONDS)),
)
_SCRIPT = (
    *("perf", "script", "--show-mmap-events", "--show-task-events", "--no-inline", "--no-demangle", "--ns"),
    *("-F", "comm,pid,tid,time,period,event,ip,sym,dso", "-i", "-"),
)
_KERNEL = 1 << 63
pytestmark = pytest.mark.system("root", "perf")


@contextmanager
def own_program(language: str, folder: Path, name: str) -> Iterator[None]:
    """Run the test's own program, which has the name, and no frame pointers."""
    compiler, *options = _COMPILERS[language]
    binary = folder / name
    source = _SOURCES / f"no_frame_pointers.{language}"
    subprocess.run([compiler, *options, "-g", "-o", binary, source], check=True, capture_output=True)
    with running(binary):
        yield


@contextmanager
def nginx(folder: Path, name: str) -> Iterator[None]:
    """Run an nginx that compresses what clients ask for."""
    port = free_port()
    (folder / "page.txt").write_text("".join(f"{number}\n" for number in range(20_000)))
    settings = (
        f"daemon off; user root; pid {folder}/pid; error_log {folder}/log; worker_processes 1; events {{}}\n"
        f"http {{ access_log off; gzip on; gzip_types *; root {folder};\n"
        f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
        f"uwsgi_temp_path {folder}/uwsgi;\n"
        f"fastcgi_temp_path {folder}/fastcgi; scgi_temp_path {folder}/scgi;\n"
        f"server {{ listen 127.0.0.1:{port}; }} }}\n"
    )
    (folder / "nginx.conf").write_text(settings)
    command = (
        _copied("nginx", folder, name),
        "-c",
        folder / "nginx.conf",
        "-p",
        folder,
        "-e",
        folder / "log",
    )
    with subprocess.Popen(command) as process:
        try:
            wait_until_answers(port, process, folder / "log")
            with _repeating(lambda: _get(port)):
                yield
        finally:
            process.terminate()


@contextmanager
def redis(folder: Path, name: str) -> Iterator[None]:
    """Run a Redis, and its benchmark."""
    port = free_port()
    server = (_copied("redis-server", folder, name), "--port", str(port), "--bind", "127.0.0.1", "--save", "")
    load = ("redis-benchmark", "-p", str(port), "-q", "-l", "-c", "4", "-t", "set,get,lrange_100,zadd")
    ask = ("redis-cli", "-p", str(port), "ping")
    with subprocess.Popen(server, stdout=subprocess.DEVNULL, cwd=folder) as process:
        try:
            deadline = time.monotonic() + 60
            while subprocess.run(ask, capture_output=True, check=False).returncode:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            with subprocess.Popen(load, stdout=subprocess.DEVNULL) as clients:
                yield
                clients.kill()
        finally:
            process.terminate()


@contextmanager
def postgres(_folder: Path, name: str) -> Iterator[None]:
    """Run a PostgreSQL, and pgbench."""
    with running_postgres(name=name) as cluster, cluster.pgbench(600, script="tpcb-like"):
        yield


PROGRAMS: dict[str, Callable[[Path, str], AbstractContextManager[None]]] = {
    "cc": lambda folder, name: own_program("cc", folder, name),
    "rs": lambda folder, name: own_program("rs", folder, name),
    "nginx": nginx,
    "redis": redis,
    "postgres": postgres,
}


def _copied(program: str, folder: Path, name: str) -> Path:
    """Return a copy of an installed program with a name that no other process has."""
    installed = shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert installed
    return Path(shutil.copy(installed, folder / name))


def _get(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/page.txt", headers={"Accept-Encoding": "gzip"})
    assert connection.getresponse().read()
    connection.close()


@contextmanager
def _repeating(action: Callable[[], None]) -> Iterator[None]:
    """Do something again and again meanwhile, on a thread."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            action()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def with_needs(program: str) -> object:
    """Return a parameter of a test, which is skipped without what it needs."""
    needs = {"cc": ("g++",), "rs": ("rustc",), "nginx": ("nginx",), "redis": ("redis-server",)}.get(
        program, ()
    )
    marks = [pytest.mark.system(*needs)]
    if program == "postgres":
        marks = [pytest.mark.skipif(bool(MISSING), reason=MISSING)]
    return pytest.param(program, marks=marks)


@pytest.mark.alike(2)
@pytest.mark.parametrize("program", [*map(with_needs, PROGRAMS)])
def test_stacks_are_those_of_perf_frame_by_frame(program: str, tmp_path: Path) -> None:
    """Read what perf has recorded once with the agent, and with perf and its own unwinder."""
    name = f"whole-{program[:3]}"
    with only_postgres() if program == "postgres" else ExitStack(), PROGRAMS[program](tmp_path, name):
        stream = tmp_path / "stream"
        with stream.open("wb") as file:
            subprocess.run(_RECORD, stdout=file, check=True)
        recording = read_by_agent(tmp_path, stream, name)
        theirs = read_by_perf(stream, name)
    ours = Counter({places_of(stack): 0 for stack in recording.stacks})
    for stack, (count, _) in recording.stacks.items():
        ours[places_of(stack)] += count
    total = ours.total()
    assert total == theirs.total() > 20
    assert (ours & theirs).total() >= 0.98 * total, (ours - theirs, theirs - ours)
    assert recording.followed == BY_CALL_FRAMES
    assert recording.cut_short is not None
    assert recording.cut_short <= 0.02 * total


Places = tuple[tuple[str, int], ...]


def read_by_agent(folder: Path, stream: Path, name: str) -> Recording:
    """Return what the agent makes of a stream that perf once wrote."""
    (folder / "perf").write_text(f"#!/bin/sh\nread -r enable\necho ack >&3\ncat {stream}\nexec sleep 600\n")
    (folder / "perf").chmod(0o755)
    request = SamplingRequest((name,), _FREQUENCY)  # of the period that the stream has
    return Perf(str(folder / "perf")).record(request, 1, threading.Event())


def read_by_perf(stream: Path, name: str) -> Counter[Places]:
    """Return the stacks that perf finds, by its own unwinder, with their numbers of samples."""
    with stream.open("rb") as file:
        done = subprocess.run(_SCRIPT, stdin=file, capture_output=True, check=True)
    lines = done.stdout.decode(errors="surrogateescape").split("\n")[:-1]
    # perf gives callers one address less, so that it is in the call, and so do we.
    return Counter(places_of(sample.stack, 1) for sample in parse(lines) if sample.process == name)


def places_of(stack: Stack, more: int = 0) -> Places:
    """Return the files and offsets of a stack in user space, those of callers with this much `more`."""
    user = [frame for frame in stack.frames if frame.mapping and frame.address < _KERNEL]
    return tuple(
        (frame.mapping.file, frame.address - frame.mapping.start + frame.mapping.offset + more * (place > 0))
        for place, frame in enumerate(user)
        if frame.mapping
    )


@pytest.fixture(
    scope="module", params=[pytest.param(of, marks=pytest.mark.alike(1)) for of in ("perf", "bcc")]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    return working(backends()[request.param])


@pytest.mark.parametrize("language", [with_needs("cc"), with_needs("rs")])
def test_stacks_are_those_that_the_program_says(backend: Backend, language: str, tmp_path: Path) -> None:
    """The names of its threads are the ways that they take."""
    name = f"says-{language}-{backend.name}"
    with own_program(language, tmp_path, name):
        recording = backend.record(SamplingRequest((name,), _FREQUENCY), _SECONDS, threading.Event())
    said = right = 0
    for stack, (count, _) in recording.stacks.items():
        if stack.comm.startswith("w:"):
            said += count
            right += count * (way_of(stack, tmp_path / name) == stack.comm[2:])
    assert said > 50
    assert right >= 0.95 * said
    assert recording.followed == BY_CALL_FRAMES
    assert recording.cut_short is not None
    assert recording.cut_short <= 0.02 * said


def way_of(stack: Stack, binary: Path) -> str:
    """Return the letters of the functions `step_…` from the start of the thread, or why it isn't known."""
    functions = [*reversed(functions_in(stack, binary))]
    if "forever" not in functions:
        return "not from its start"
    return "".join(name.removeprefix("step_") for name in functions if name.startswith("step_"))
