"""Code of JIT compilers has names, by each profiler: of programs in containers, and of ended ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pgo_agent.backends import Backend, KeptBcc, SamplingRequest, backends
from pgo_agent.backends.bcc_parts import can_copy
from pgo_agent.backends.whole_stacks import can_unwind
from pgo_agent.cli import main
from pgo_agent.native import native_profile

from tests.agent.busy import needs_gcc
from tests.agent.jit import NAME, build, contained
from tests.agent.latency.waiting import Sample, samples_of
from tests.agent.sampling import wait_until_begun, working
from tests.cpu_meter import children_of

FREQUENCY = 199
NAMED = "py::serve:/app/shop.py"
_JAVASCRIPT = """
function hot(n) { let sum = 0; for (let i = 0; i < n; i++) sum += Math.sqrt(i) * (i % 7); return sum }
function serve(n) { return hot(n) + 1 }
console.log("busy")
require("fs").readSync(0, Buffer.alloc(1))
for (let end = Date.now() + 60000; Date.now() < end;) serve(200000)
"""
_NODE = ("--perf-basic-prof", "--interpreted-frames-native-stack", "--max-inlined-bytecode-size=0")
_JAVA = """
public class Hot {
    static double hot(int n) {
        double sum = 0;
        for (int i = 0; i < n; i++) sum += Math.sqrt(i) * (i % 7);
        return sum;
    }
    static double serve(int n) { return hot(n) + 1; }
    public static void main(String[] args) throws Exception {
        System.out.println("busy");
        System.in.read();
        double sum = 0;
        for (int calls = 0; calls < 3000; calls++) sum += serve(200000);
        System.out.println(sum);
    }
}
"""
_HOTSPOT = ("-XX:+PreserveFramePointer", "-XX:CompileCommand=dontinline,Hot.*", "-XX:CompileCommand=quiet")
_AT_EXIT = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit")
_AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")

pytestmark = pytest.mark.system("root")


@pytest.fixture(scope="module", params=[pytest.param(of, marks=pytest.mark.alike(1)) for of in backends()])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A profiler; programs of one name share what bcc has compiled."""
    with KeptBcc() as kept:
        yield kept.keeping(working(backends()[request.param]))


def sampled(backend: Backend, name: str, process: subprocess.Popen[bytes], seconds: float) -> list[Sample]:
    """Return what a profile has of the contained process with a name, until it ends or so long."""
    (pid,) = children_of(process.pid)
    ended = threading.Event()

    def compute() -> None:
        wait_until_begun(os.getpid())
        let_compute(process)
        process.wait()
        ended.set()

    threading.Thread(target=compute, daemon=True).start()
    recording = backend.record(SamplingRequest((name,), FREQUENCY), seconds, ended)
    return [sample for sample in samples_of(native_profile(recording)) if sample.labels["pid"] == pid]


def let_compute(process: subprocess.Popen[bytes]) -> None:
    """Send the line that a program waits for."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def share_of(samples: Sequence[Sample], *callers: str) -> float:
    """Return the share of samples that have these functions in a row, each called by the next."""
    counts: Counter[bool] = Counter()
    for sample in samples:
        rows = zip(*(sample.functions[at:] for at in range(len(callers))), strict=False)
        has = any(all(name in seen for name, seen in zip(callers, row, strict=True)) for row in rows)
        counts[has] += sample.events
    return counts[True] / counts.total()


@needs_gcc
def test_a_compiled_function_stands_between_its_caller_and_what_it_calls(
    backend: Backend, tmp_path: Path
) -> None:
    binary = build(tmp_path)
    with contained(tmp_path, f"./{binary.name}", "60", NAMED, "again") as process:
        samples = sampled(backend, NAME, process, 2.0)
    assert share_of(samples, "spin", NAMED, "main") > 0.9, samples


@needs_gcc
def test_a_trampoline_of_python_stands_in_its_place(backend: Backend, tmp_path: Path) -> None:
    """It has neither a frame pointer nor call frame information; without these, its caller is missing."""
    binary = build(tmp_path)
    with contained(tmp_path, f"./{binary.name}", "60", NAMED, "frameless") as process:
        samples = sampled(backend, NAME, process, 2.0)
    follows = {"bcc": can_copy, "perf": can_unwind}.get(backend.name, bool)
    callers = ("main",) if follows() else ()
    assert share_of(samples, "spin", NAMED, *callers) > 0.9, samples


@needs_gcc
def test_code_of_a_program_that_has_ended_has_names(backend: Backend, tmp_path: Path) -> None:
    binary = build(tmp_path)
    with contained(tmp_path, f"./{binary.name}", "2", NAMED) as process:
        samples = sampled(backend, NAME, process, 120.0)
    assert share_of(samples, NAMED) > 0.9, samples


@pytest.mark.system("node")
def test_functions_of_node_have_names(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "serve.js").write_text(_JAVASCRIPT)
    tmp_path.chmod(0o777)
    node = str(shutil.which("node"))
    with contained(tmp_path, *_AS_NOBODY, node, *_NODE, "serve.js") as process:
        samples = sampled(backend, "node", process, 3.0)
    assert share_of(samples, "hot /tmp/serve.js", "serve /tmp/serve.js") > 0.8, samples


@pytest.mark.system("javac")
def test_functions_of_the_jvm_have_names_when_it_ends(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "Hot.java").write_text(_JAVA)
    subprocess.run(["javac", tmp_path / "Hot.java"], check=True)
    java = str(shutil.which("java"))
    with contained(tmp_path, java, *_HOTSPOT, *_AT_EXIT, "-cp", ".", "Hot") as process:
        samples = sampled(backend, "java", process, 120.0)
    assert share_of(samples, "double Hot.hot(int)", "double Hot.serve(int)") > 0.7, samples


@pytest.mark.system("perf", "javac", "jcmd")
def test_a_recording_of_perf_has_names_if_the_file_was_there(tmp_path: Path) -> None:
    (tmp_path / "Hot.java").write_text(_JAVA.replace("3000", "100000"))
    subprocess.run(["javac", tmp_path / "Hot.java"], check=True)
    recording, profile = tmp_path / "perf.data", tmp_path / "cpu.pb.gz"
    command: list[str | Path] = ["java", *_HOTSPOT, "-cp", tmp_path, "Hot"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            let_compute(process)
            followed = ("-g", "--buildid-mmap", "-p", str(process.pid), "-o", recording, "--", "sleep", "2")
            subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", *followed], check=True)
            subprocess.run(["jcmd", str(process.pid), "Compiler.perfmap"], check=True, capture_output=True)
            assert main(["convert", str(recording), "-o", str(profile)]) == 0
        finally:
            process.kill()
            Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)  # noqa: S108 - where the JVM writes it
    assert share_of(samples_of(profile.read_bytes()), "double Hot.hot(int)", "double Hot.serve(int)") > 0.7
