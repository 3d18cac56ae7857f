"""The targets of bombs: every parser, and every output made of what it parsed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pgo_agent.errors import AgentError
from pgo_agent.native.elf import Elf
from pgo_agent.native.perf_script import parse
from pgo_agent.scrape.pod import PodLabels, pod_target
from pgo_agent.scrape.submit_queue import check_pprof
from pgo_agent.scrape.target import TargetDefaults
from pgo_agent.scrape.targets_file import read_targets
from pgo_agent.serve import CaptureRequest
from pgo_agent.serve import RequestRefused as AgentRefusal
from pgo_agent.spool import unpack
from pgo_collector.blobs.folder import FolderStorage
from pgo_collector.blobs.storage import StoredObject
from pgo_collector.engine import latencies, tasks, views
from pgo_collector.engine.blob_columns import STORED_LIMITS, BlobColumns
from pgo_collector.engine.merge_inputs import ROW_CACHE, ChosenBlobs
from pgo_collector.engine.renditions import PLAIN_RENDITION, Rendition
from pgo_collector.engine.validation import SubmittedBody, validate_bodies
from pgo_collector.errors import Refusal
from pgo_collector.model.selection import USUAL, Coarse
from pgo_collector.model.series import Series
from pgo_collector.queries.flames import Flame
from pgo_collector.settings import Settings
from pgo_collector.ui.flame_drawing import drawing_of
from pprof_merge import ProfileError, Weighting
from pprof_merge.analysis import GROUPINGS, LatencyRange
from pprof_merge.analysis.coverage import parse_symbols
from pprof_merge.analysis.flame_graph import FlameView
from pprof_merge.analysis.rules import Rules, parse_rules
from pprof_merge.errors import RulesInvalid, SymbolsInvalid
from pprof_merge.formats import FORMATS

from tests.campaign.bomb_inputs import PROFILE, Kind, text_kind
from tests.merge.stacked import stacked

DOCUMENTED = (
    ProfileError,
    RulesInvalid,
    SymbolsInvalid,
    Refusal,
    AgentError,
    AgentRefusal,
)
_TYPE = "other"
_LARGEST_SCRAPE = 8 << 20
_NOW = 1_700_000_000_000_000_000

Work = Callable[[bytes, Path], int]


class Target(NamedTuple):
    """A parser and what follows it.

    It has the kind of its inputs, and a function that processes an input in a folder and returns the size of
    the output.
    """

    kind: Kind
    work: Work


class _Engine:
    """The collector's engine, with one profile in a folder and the settings of a server."""

    def __init__(self, body: bytes, folder: Path) -> None:
        """Validate the body like that of a submit, and store it."""
        settings = Settings()
        (validated,) = validate_bodies([SubmittedBody(body, _TYPE)], settings.limits)
        if isinstance(validated, Exception):
            raise validated
        self._folder = folder
        self.budget = settings.output_budget
        storage = FolderStorage(folder, folder)
        blobs = BlobColumns(
            storage,
            (Series("service", _TYPE),),
            np.zeros(1, np.int32),
            np.array([_NOW]),
            np.frombuffer(bytes.fromhex(validated.facts.digest), np.uint8).reshape(1, 32),
            np.zeros(1, np.bool_),
        )
        self._blob = StoredObject(storage, blobs.name(0))
        blob = folder / blobs.name(0)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(validated.packed or body)
        ROW_CACHE.folder, ROW_CACHE.most_bytes = folder, 64 << 20
        self.chosen = ChosenBlobs("service", _TYPE, blobs)

    def merged(self, form: Rendition) -> int:
        """Return the size of the merge in a rendition."""
        part = self._folder / "part"
        tasks.merge_blobs(self.chosen, form, part, self.budget)
        return part.stat().st_size

    def reported(self, symbols: Path | None) -> int:
        """Return the size of the report, also compared with the same profile as the release."""
        subjects = tasks.ReportSubjects(symbols, self._blob, None)
        return len(tasks.report_blobs(self.chosen, subjects, _NOW, self.budget).report or b"")


def _format(name: str, weighting: Weighting) -> Work:
    return lambda body, folder: _Engine(body, folder).merged(Rendition(FORMATS[name], Rules(), weighting))


def _ruled(body: bytes, folder: Path) -> int:
    rules = parse_rules(b"drop /.*a{20}.*/\nnoinline /[0-9]*.*/\ndrop 1a\n")
    return _Engine(body, folder).merged(Rendition(FORMATS["go"], rules))


def _report(body: bytes, folder: Path) -> int:
    return _Engine(body, folder).reported(None)


def _report_with_symbols(body: bytes, folder: Path) -> int:
    (folder / "symbols").write_bytes(body)
    parse_symbols(body)
    return _Engine(stacked({"main.main;main.run": 100}), folder).reported(folder / "symbols")


def _table(body: bytes, folder: Path) -> int:
    engine = _Engine(body, folder)
    return sum(
        len(pickle.dumps(views.table_blobs(engine.chosen, grouping, USUAL, engine.budget)))
        for grouping in GROUPINGS
    )


def _timeline(body: bytes, folder: Path) -> int:
    engine = _Engine(body, folder)
    steps = {engine.chosen.blobs.name(0): 999}
    return len(
        pickle.dumps(views.time_blobs(engine.chosen, steps, ("function", "main.run"), USUAL, engine.budget))
    )


def _latencies(body: bytes, folder: Path) -> int:
    """Return the size of the merge of some latencies, of the histogram and of the heat map."""
    engine = _Engine(body, folder)
    size = engine.merged(replace(PLAIN_RENDITION, latencies=LatencyRange(0)))
    steps = {engine.chosen.blobs.name(0): 999}
    return size + sum(
        len(pickle.dumps(found))
        for found in (
            latencies.histogram_blobs(engine.chosen, engine.budget),
            latencies.heat_blobs(engine.chosen, steps, 1000, engine.budget),
        )
    )


def _flame(body: bytes, folder: Path) -> int:
    """Return the size of the flame graph and of its drawing, with a search that matches everything."""
    engine = _Engine(body, folder)
    view = FlameView(least=0, search="1")
    drawn = views.draw_blobs(engine.chosen, views.StackReading(), view, None, engine.budget)
    size = len(pickle.dumps(drawn))
    if drawn.graph is not None and drawn.sample_type is not None:
        shown = drawn.sample_type, drawn.graph, drawn.profiles, drawn.whole
        flame = Flame(*shown, Coarse(), [*drawn.left_out], drawn.basis)
        size += len(repr(drawing_of(flame, view.search)))
    return size


def _legacy(body: bytes, folder: Path) -> int:
    """Validate a file in pgo-fleet's layout: only an operator can add one, so most limits don't apply."""
    part = folder / "part"
    part.write_bytes(body)
    (validated,) = validate_bodies([SubmittedBody(part, _TYPE)], STORED_LIMITS)
    if isinstance(validated, Exception):
        raise validated
    return part.stat().st_size


def _rules(body: bytes, folder: Path) -> int:
    rules = parse_rules(body)
    return _Engine(stacked({"main.main;main.run": 100}), folder).merged(Rendition(FORMATS["go"], rules))


def _scraped(body: bytes, _: Path) -> int:
    check_pprof(body, _LARGEST_SCRAPE)
    return 0


def _order(body: bytes, _: Path) -> int:
    return len(repr(CaptureRequest.parse(body, ())))


def _targets(body: bytes, folder: Path) -> int:
    (folder / "targets.toml").write_bytes(body)
    return len(repr(read_targets(folder / "targets.toml", TargetDefaults(("cpu",), 10))))


def _pod(body: bytes, _: Path) -> int:
    """Parse an answer of Kubernetes; its client refuses invalid JSON."""
    try:
        pod = json.loads(body)
    except (ValueError, RecursionError):
        return 0
    return len(repr(pod_target(pod, TargetDefaults(("cpu",), 10), PodLabels({"pod": "pod"}))))


def _perf(body: bytes, _: Path) -> int:
    try:
        return sum(len(sample.stack.frames) for sample in parse(body.decode(errors="replace").split("\n")))
    except ValueError:  # documented there; it becomes NotReadable
        return 0


def _elf(body: bytes, folder: Path) -> int:
    (folder / "elf").write_bytes(body)
    return len(Elf.read(folder / "elf").build_id)


def _spooled(body: bytes, folder: Path) -> int:
    return len(unpack(folder, body).body)


_SYMBOLS = text_kind(
    (b"4d53a0 T main.main\n", b"a", b" ", b"\n", b"0", b"\xff", b"\x85", b"T ", b".abi0", b"\r")
)
_RULES = text_kind(
    (
        b"drop ",
        b"noinline ",
        b"main.run\n",
        b"/",
        b"(",
        b")",
        b"a",
        b"{9}",
        b"[a-z]",
        b"|",
        b".*",
        b"\\",
        b"\n",
        b"\xff",
    )
)
_JSON = text_kind(
    (
        b"{",
        b"}",
        b"[",
        b"]",
        b'"a"',
        b":",
        b",",
        b"9",
        b"1e9",
        b"-",
        b'"',
        b"\\u0041",
        b'"timeout_seconds"',
        b"\xff",
    )
)
_POD = text_kind(
    (
        b"profefe.com/enable",
        b"profiles.grafana.com/cpu.scrape",
        b'":"',
        b'","',
        b"9",
        b"a",
        b"{",
        b"[",
        b"\\ud800",
    ),
    b'{"status":{"podIP":"10.0.0.1","phase":"Running"},"metadata":{"name":"x","annotations":{"a":"',
    b'"}}}',
)
_TOML = text_kind(
    (b"[[target]]\n", b"url='http://a'\n", b"service='a'\n", b"seconds=", b"9", b"a.", b"a", b"=", b"[", b"]",
     b"{", b"'", b"\n", b"0x", b"labels={}\n")
)  # fmt: skip
_PERF = text_kind(
    (b"x 1/1 0.0: PERF_RECORD_MMAP2 1/1: [0x1(0x1) @ 0 00:00 0 0]: r-xp /a\n",
     b"x 1/1 0.0: PERF_RECORD_COMM: x:1/1\n", b"x  1/1  2.000000000:     1 cpu-clock: \n",
     b"\t 10 main (/a)\n", b"\n", b"x", b" ", b"1/1 ", b"9", b"(", b")", b": ", b"PERF_RECORD_")
)  # fmt: skip
_ELF = text_kind(
    (b"\1\0\0\0\4\0\0\0", b"\4\0\0\0\4\0\0\0", bytes(8), b"\xff" * 8, b"\x40" + bytes(7), b"\4\0\0\0",
     b"GNU\0", b"\x10\0\0\0"),
    b"\x7fELF\2\1\1".ljust(16, b"\0") + b"\3\0>\0\1\0\0\0" + bytes(8) + b"\x40" + bytes(7 + 8 + 4)
    + b"\x40\0\x38\0\x80\0" + bytes(6),
)  # fmt: skip

TARGETS: Mapping[str, Target] = {
    **{f"pprof, format {name}": Target(PROFILE, _format(name, Weighting())) for name in FORMATS},
    "pprof, weighted": Target(PROFILE, _format("pprof", Weighting("instance"))),
    "pprof, by rules": Target(PROFILE, _ruled),
    "pprof, report": Target(PROFILE, _report),
    "pprof, tables": Target(PROFILE, _table),
    "pprof, timeline": Target(PROFILE, _timeline),
    "pprof, latencies": Target(PROFILE, _latencies),
    "pprof, flame graph": Target(PROFILE, _flame),
    "legacy .pgo": Target(PROFILE, _legacy),
    "symbols": Target(_SYMBOLS, _report_with_symbols),
    "rules": Target(_RULES, _rules),
    "agent, scraped pprof": Target(PROFILE, _scraped),
    "agent, order": Target(_JSON, _order),
    "agent, targets": Target(_TOML, _targets),
    "agent, pod": Target(_POD, _pod),
    "agent, perf script": Target(_PERF, _perf),
    "agent, ELF": Target(_ELF, _elf),
    "agent, spooled": Target(_JSON, _spooled),
}


def warm_up(folder: Path) -> None:
    """Do everything that is done once in a process, as imports, so that a child costs what its input does."""
    folder.mkdir()
    for target in TARGETS.values():
        with suppress(*DOCUMENTED):
            target.work(stacked({"main.main;main.run": 100}), folder)
