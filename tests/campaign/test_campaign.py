"""The campaign finds planted faults, names what reproduces them, and ends in time."""

from __future__ import annotations

import os
import re
import zlib
from functools import partial
from pathlib import Path
from random import Random

import pytest
from pprof_merge import ProfileError, decode
from pprof_merge.analysis.stacks import stacks_of

from tests.campaign import bombs, programs, run, senders, wire
from tests.campaign.bomb_inputs import PROFILE, text_kind
from tests.campaign.bomb_targets import TARGETS, Target
from tests.campaign.capped import Cap, cost_of
from tests.campaign.report import Findings
from tests.campaign.wire_requests import SMUGGLED, framed, malformed
from tests.collector.mutants import SENDERS, Reply
from tests.oracle.builder import seeded
from tests.server import Server

CAP = Cap(memory=64 << 20, cpu=5)
MIB = 1 << 20


def test_findings_are_printed_figures_first() -> None:
    findings = Findings()
    findings.fault("it fell", "a push")
    findings.figure("height", "3 m")
    findings.figure("width", 2)
    assert findings.lines() == ["  height  3 m", "  width   2", "  FAULT: it fell; reproduced by a push"]


@pytest.mark.parametrize("faults", [0, 1])
def test_the_command_says_its_seed_and_fails_with_faults(
    faults: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(seed: int, seconds: float, scratch: Path) -> Findings:
        (scratch / "input").write_text("x")
        return Findings({"tried": f"{seed} {seconds}"}, ["it fell"] * faults)

    monkeypatch.setattr(bombs, "run", found)
    assert run.main(["bombs", "--seed", "7", "--seconds", "0.5"]) == faults
    printed = capsys.readouterr().out
    assert "seed 7" in printed
    assert "7 0.5" in printed
    assert printed.count("FAULT") == faults
    (scratch,) = re.findall("files in (.*)", printed)
    assert Path(scratch).exists() == bool(faults)


def test_what_work_takes_is_measured() -> None:
    cost = cost_of(lambda: len(bytes(24 * MIB).replace(b"\0", b"a")), (), CAP)
    assert 20 * MIB < cost.memory <= 64 * MIB
    assert (cost.output, cost.refusal, cost.fault) == (24 * MIB, "", "")


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("bytes(1 << 30)", "more than 64 MiB of memory"),
        ("int('x')", "ValueError at"),
        # As a program of its own would: pytest's handler prints all stacks.
        (
            "(__import__('faulthandler').disable(), __import__('os').kill(__import__('os').getpid(), 11))",
            "ended by SIGSEGV",
        ),
        ("__import__('os')._exit(3)", "ended by exit status 3"),
        ("sum(0 for _ in iter(int, 1))", "ended by SIGXCPU"),
    ],
)
def test_what_ends_work_is_a_fault(code: str, fault: str) -> None:
    cap = Cap(CAP.memory, 1)
    assert fault in cost_of(lambda: int(eval(code) is None), (), cap).fault  # noqa: S307 - it is written above


def test_a_documented_error_is_no_fault() -> None:
    def refuse() -> int:
        raise ProfileError("too much")

    assert cost_of(refuse, (ProfileError,), CAP)[3:] == ("ProfileError", "")


def planted(body: bytes, _: Path) -> int:
    """Take far too much for one kind of input, and fail with another."""
    if body.count(b"(") > 40:
        return len(b"x" * (body.count(b"(") * 4 * MIB))
    if b"))" in body:
        raise KeyError(body)
    return len(body)


def searched(target: Target, folder: Path, wanted: set[str]) -> bombs.Search:
    """Search until faults that begin with `wanted` are found, which takes some dozens of steps."""
    search = bombs.Search("planted", target, seeded(1), folder, CAP)
    for _ in range(2000):
        search.step({"planted": search})
        if all(any(fault.startswith(each) for fault in search.faults) for each in wanted):
            break
    return search


def test_a_search_finds_what_is_planted(tmp_path: Path) -> None:
    target = Target(text_kind((b"(", b")", b"a", b" ")), planted)
    search = searched(target, tmp_path / "search", {"more than", "KeyError"})
    findings = Findings()
    search.report(findings)
    assert {"planted: memory", "planted: output", "planted: cpu"} == {*findings.figures}
    assert any("more than 64 MiB of memory" in fault for fault in findings.faults), findings
    assert any("KeyError at test_campaign.py" in fault for fault in findings.faults), findings
    for fault in findings.faults:
        body = Path(fault.rpartition("reproduced by ")[2]).read_bytes()
        assert len(body) <= 16 << 10
        assert cost_of(partial(planted, body, tmp_path), (), CAP).fault


def joined(body: bytes, _: Path) -> int:
    """Join the names of all stacks without a budget."""
    stacks = stacks_of(decode(body))
    names = [frame.name for frame in stacks.frames]
    return len(";".join(names[row] for chunk in stacks.chunks() for row in chunk.rows.tolist()))


def test_a_format_without_a_budget_is_found(tmp_path: Path) -> None:
    """The search starts with a harmless input and makes it worse step by step."""
    assert not cost_of(partial(joined, PROFILE.make(PROFILE.harmless), tmp_path), (ProfileError,), CAP).fault
    search = searched(Target(PROFILE, joined), tmp_path / "search", {"more than"})
    assert any(fault.startswith("more than 64 MiB") for fault, _ in search.faults.values()), search.worst


def test_all_targets_are_searched_in_turn(tmp_path: Path) -> None:
    targets = {name: Target(text_kind((b"a",)), lambda body, _: len(body)) for name in ("pprof a", "b", "c")}
    findings = bombs.run(1, 2, tmp_path, targets, CAP)
    assert "pprof a: output" in findings.figures
    assert findings.faults == []


def test_every_target_takes_harmless_input(tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        if target.kind is PROFILE:
            folder = tmp_path / re.sub(r"\W+", "-", name)
            folder.mkdir()
            body = PROFILE.make(PROFILE.harmless)
            cost = cost_of(partial(target.work, body, folder), (), Cap())
            assert not cost.fault or "UnfitForFormat" in cost.fault or "NotOfThisProfile" in cost.fault, name


def test_raw_requests_have_what_is_never_a_request_in_their_body() -> None:
    random = seeded(1)
    for _ in range(200):
        whole = b"".join(framed(random).pieces)
        head, _, body = whole.partition(b"\r\n\r\n")
        assert SMUGGLED.encode() in body
        assert SMUGGLED.encode() not in head
        assert b"".join(malformed(random).pieces)


def test_a_fault_of_a_server_is_found(tmp_path: Path) -> None:
    """Requests from the OpenAPI description find that a server exceeds bounds that are set too low."""
    findings = wire.run(1, 3, tmp_path, wire.Bounds(memory=MIB, health=600, submit=600))
    assert any("the server takes more than 1 MiB" in fault for fault in findings.faults)
    assert "from_the_description" in findings.figures["rounds"]


def test_a_server_that_ends_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[Server] = []

    class Noted(Server):
        def start(self) -> None:
            super().start()
            servers.append(self)

    monkeypatch.setattr(wire, "Server", Noted)
    monkeypatch.setattr(wire.Attack, "from_the_description", lambda _: servers[0].process.kill())
    findings = wire.run(1, 5, tmp_path)
    assert any("the server has ended" in fault for fault in findings.faults)


@pytest.mark.exhaustive
def test_an_answer_that_no_client_expects_is_found(tmp_path: Path) -> None:
    tried = {
        "autopgo": SENDERS["autopgo"],
        "planted": lambda _, random: Reply("500", f"fell {random.random()}"),
    }
    findings = senders.run(1, 600, tmp_path, tried, most_megabytes=1)
    fell, *large = findings.faults
    drawn = Random("1/planted/0").random()  # noqa: S311 - nothing secret
    assert fell == f"planted: fell {drawn}; reproduced by Random('1/planted/0')"
    assert [fault.split(" takes ")[0] for fault in large] == ["the server stored", "the server asked"]
    assert findings.figures["requests of each sender"] == "10"


@pytest.mark.exhaustive
@pytest.mark.system("gcc", "g++", "clang", "clang++", "objcopy", "strip")
def test_a_program_that_is_a_fault_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = programs.run(1, 5.0, tmp_path)
    assert (found.faults, int(found.figures["programs"]) > 3) == ([], True)

    def fails(program: Path, *_: object) -> str:
        if zlib.crc32(program.read_bytes()) % 2:
            os.abort()
        raise ValueError("a bug")

    monkeypatch.setattr(programs, "write_table", fails)
    found = programs.run(1, 60.0, tmp_path)
    assert {fault.partition(";")[0] for fault in found.faults} == {
        "ValueError: a bug",
        "the process was ended by SIGABRT",
    }
    assert len([*tmp_path.glob("fault-*")]) == len(found.faults)
