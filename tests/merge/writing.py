"""Measuring what it costs to write the outputs of one profile.

The program `writing.py FILE MOST_BYTES ROOM` reads the file and writes each output within a budget of
MOST_BYTES, with at most ROOM bytes of memory more than it had after reading. It prints the outcome of each
output. It is a process of its own, so that the peak memory is due to that output.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

WRITTEN, TOO_LARGE, UNFIT = "written", "too large", "unfit"


class Writing(NamedTuple):
    """The outcome: `result` is WRITTEN, TOO_LARGE, UNFIT or the name of another error, `words` its message.

    `size` is that of the output in bytes, `seconds` is CPU time, `memory` is the growth of the peak memory in
    bytes.
    """

    result: str
    words: str
    size: int
    seconds: float
    memory: int


def writings(data: bytes, folder: Path, most_bytes: int, room: int) -> dict[str, Writing]:
    """Return what it costs to write each output of a file with these bytes, by the output's name.

    The file is written into the folder.
    """
    file = folder / "input"
    file.write_bytes(data)
    command = [sys.executable, __file__, str(file), str(most_bytes), str(room)]
    finished = subprocess.run(command, check=False, capture_output=True, timeout=600)
    assert finished.returncode == 0, finished.stderr.decode()
    return {name: Writing(*written) for name, written in json.loads(finished.stdout).items()}


def _outputs(data: bytes, most_bytes: int) -> dict[str, Callable[[], int]]:
    """Return, by name, a function for each kind of output that writes it and returns its size."""
    from pprof_merge import Budget, Collection, Limits  # noqa: PLC0415 - not for the parent
    from pprof_merge.analysis.build_report import ReportedProfile, ReportOptions, report  # noqa: PLC0415
    from pprof_merge.analysis.edge_overlap import overlap  # noqa: PLC0415
    from pprof_merge.analysis.flame_graph import FlameGraph, FlameView  # noqa: PLC0415
    from pprof_merge.analysis.focus import focus_names  # noqa: PLC0415
    from pprof_merge.analysis.grouping import GROUPINGS, Grouping, file_of  # noqa: PLC0415
    from pprof_merge.analysis.rules import apply_rules, parse_rules  # noqa: PLC0415
    from pprof_merge.analysis.timeline import Timeline  # noqa: PLC0415
    from pprof_merge.analysis.top_table import TopTable  # noqa: PLC0415
    from pprof_merge.analysis.weighed_stacks import WeighedStacks  # noqa: PLC0415
    from pprof_merge.formats import FORMATS  # noqa: PLC0415

    collection, budget = Collection(Limits.none()), Budget(most_bytes)
    number = collection.add(data)
    merged = collection.merge([number])
    rules = parse_rules(b"noinline /.*/\n")

    def formatted(name: str) -> Callable[[], int]:
        return lambda: sum(len(piece) for piece in FORMATS[name].pieces(merged, budget))

    def tabled(by: Grouping) -> Callable[[], int]:
        return lambda: TopTable.of(merged, by, column=1, budget=budget).nbytes

    def drawn(*, is_zoomed: bool = False, by: Grouping = "function") -> int:
        stacks = WeighedStacks.of(merged, 1, budget, by=by, is_collapsed=by != "function")
        graph = FlameGraph.of(stacks, FlameView(search="x"))
        if is_zoomed:
            graph = FlameGraph.of(
                stacks.beside(stacks, budget), FlameView(root=int(graph.key[-1]), least=0.1)
            )
        return sum(map(len, graph.names))

    def timed() -> int:
        found = Timeline.of(collection, [number], [0], lambda frame: file_of(frame) == "main.go", budget)
        return int(found.total.nbytes)

    def reported() -> int:
        subjects = [ReportedProfile(number, "a"), ReportedProfile(number, "b")]
        return len(
            report(collection, subjects, 10**18, ReportOptions(frozenset([b"f1"]), merged), budget).json(
                budget
            )
        )

    return {
        **{name: formatted(name) for name in FORMATS},
        **{f"table by {by}": tabled(by) for by in GROUPINGS},
        "flame graph": drawn,
        "flame graph by line": lambda: drawn(by="line"),
        "flame graph by package": lambda: drawn(by="package"),
        "flame graph, zoomed": lambda: drawn(is_zoomed=True),
        "timeline": timed,
        "report": reported,
        "overlap": lambda: overlap(merged, merged, budget) > 0,
        "focus": lambda: len(focus_names(merged, hide=lambda name: name.endswith("1")).samples),
        "rules": lambda: sum(map(len, FORMATS["go"].pieces(apply_rules(merged, rules), budget))),
    }


def _write(output: Callable[[], int]) -> Writing:
    from pprof_merge import OutputTooLarge, ProfileError  # noqa: PLC0415
    from pprof_merge.heap import trim_heap  # noqa: PLC0415

    trim_heap()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, began, size, result, words = _memory("VmRSS"), time.process_time(), 0, WRITTEN, ""
    try:
        size = output()
    except OutputTooLarge as error:
        result, words = TOO_LARGE, str(error)
    except ProfileError as error:
        result, words = UNFIT, str(error)
    except MemoryError as error:
        result, words = type(error).__name__, str(error)
    return Writing(result, words, size, time.process_time() - began, _memory("VmHWM") - before)


def _memory(kind: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{kind}:")[1].split()[0]) << 10


def _main(file: str, most_bytes: str, room: str) -> None:
    outputs = _outputs(Path(file).read_bytes(), int(most_bytes))
    limit = _memory("VmData") + int(room)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    json.dump({name: _write(output) for name, output in outputs.items()}, sys.stdout)


if __name__ == "__main__":
    _main(*sys.argv[1:])
