"""async-profiler's converter makes OTLP and pprof of what Java's Flight Recorder recorded, which curl sends.

`make setup WITH=clients` brings it.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.collector.exporting import EXPORT
from tests.collector.pushing import stored
from tests.interop.curl import Client
from tests.interop.test_pyroscope import installed
from tests.server import Server

pytestmark = pytest.mark.system("java", "curl")

_PATIENCE_SECONDS = 300.0
_HELD = 64 << 20
_PROTOBUF = ("--header", "Content-Type: application/x-protobuf")


def _run(*command: str | Path) -> None:
    finished = subprocess.run(["java", *command], capture_output=True, timeout=_PATIENCE_SECONDS, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Java's own recording of a program that holds something, and is busy."""
    file = tmp_path_factory.mktemp("recording") / "busy.jfr"
    recorded = f"-XX:StartFlightRecording=filename={file},settings=profile"
    _run(recorded, "-cp", installed("java-clients"), "Busy", "64", "2")
    return file


def _converted(recording: Path, file: Path, format_: str, *options: str) -> Path:
    jar = installed("java-clients") / "jfr-converter-4.5.jar"
    _run("-jar", jar, *options, "-o", format_, recording, file)
    return file


def _stacks(folded: str) -> Counter[str]:
    """Return the values of folded stacks, of functions as Java's pprof names them.

    The converter marks how a function was compiled, as `_[j]`.
    """
    stacks: Counter[str] = Counter()
    for line in folded.splitlines():
        stack, _, value = line.rpartition(" ")
        stacks[re.sub(r"_\[.\]", "", stack).replace("/", ".")] += int(value)
    return stacks


@pytest.mark.parametrize(
    ("converted", "route", "kept"),
    [
        (("otlp",), EXPORT, ("process_cpu", {})),
        (("pprof",), "/v1/submit?service=java.shop&type=process_cpu", ("process_cpu", {})),
        (("pprof", "--alloc", "--total"), "/v1/submit?service=java.shop&type=memory", ("memory", {})),
    ],
)
def test_a_merge_says_what_java_recorded(
    tmp_path: Path,
    recording: Path,
    converted: tuple[str, ...],
    route: str,
    kept: tuple[str, dict[str, str]],
) -> None:
    """A request of OTLP names no service: the key is for one.

    Of allocations the converter makes no OTLP if one has no stack, as those of the compiler's threads.
    """
    is_otlp, options = route == EXPORT, converted[1:]
    file = _converted(recording, tmp_path / "sent", *converted)
    expected = _stacks(_converted(recording, tmp_path / "folded", "collapsed", *options).read_text())
    server = Server(tmp_path / "home")
    server.submit_keys.write_text(f"{server.submit_key} service=java.shop\n")
    with server:
        sent = ("--data-binary", f"@{file}", *(_PROTOBUF if is_otlp else ()))
        answer = Client(server.base_url, server, tmp_path).curl(route, *sent, key=server.submit_key)
        assert answer.status == (200 if is_otlp else 204), answer.body
        assert stored(server, "java.shop") == [kept]
        query = {"service": "java.shop", "type": kept[0]}
        merged = _stacks(server.merge(query=query, format_="folded").text)
    assert merged.items() >= expected.items()
    # Folded stacks don't have those allocations; pprof has what was allocated in place of a stack.
    assert [stack for stack in merged.keys() - expected.keys() if ";" in stack] == []
    function, least = ("hold", 0.9 * _HELD) if options else ("countInJava", 0.5 * merged.total())
    assert sum(merged[stack] for stack in merged if f"Busy.main;Busy.{function}" in stack) > least
