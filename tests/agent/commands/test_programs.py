"""`--symbols`: programs that were profiled go to a collector that lacks them, without their code."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgo_agent.collector import Collector
from pgo_agent.errors import CollectorUnavailable, KeyRefused, SubmitRefused
from pgo_agent.native import Elf, Frame, Mapping, Stack
from pgo_agent.programs import BackgroundPrograms, ProgramSender

from tests.agent.busy import build, needs_gcc
from tests.agent.commands.test_uploads import program
from tests.agent.forked import run_agent
from tests.agent.scripted_server import KEY, Answer, ScriptedServer
from tests.agent.serving import parsed

LACKING, THERE, STORED = Answer(404), Answer(200), Answer(200)


def stacks(*files: Path, build_id: str = "") -> list[Stack]:
    """Return a stack of this process in each file, and in what is no file."""
    every = [Mapping(str(file), build_id or Elf.read(file).build_id, 0, 4096, 0) for file in files]
    others = [Mapping("[vdso]", "abcd", 0, 4096, 0), Mapping("/no/build/id", "", 0, 4096, 0), None]
    return [Stack("shop", 1 << 30, 0, (Frame(1, mapping, ""),)) for mapping in (*every, *others)]


@pytest.fixture
def collector(server: ScriptedServer) -> Iterator[Collector]:
    with Collector(server.url, KEY, service="shop", attempts=1) as collector:
        yield collector


def test_what_the_collector_lacks_is_sent_once(
    server: ScriptedServer, collector: Collector, tmp_path: Path
) -> None:
    files = [program(tmp_path / name, name.encode()) for name in ("shop", "bank")]
    ids = [name.encode().hex() for name in ("shop", "bank")]
    server.answers = [LACKING, STORED, THERE]
    sender = ProgramSender(collector)
    sent = sender.send(stacks(*files, files[0]))
    assert sent == [(str(files[0]), ids[0], "sent"), (str(files[1]), ids[1], "there")]
    assert sender.send(stacks(*files)) == []
    assert [(seen.path, seen.body) for seen in server.seen] == [
        (f"/v1/binaries/{ids[0]}?service=shop", b""),
        ("/v1/binaries?service=shop", files[0].read_bytes()),  # which has no names that objcopy would keep
        (f"/v1/binaries/{ids[1]}?service=shop", b""),
    ]


def test_an_older_collector_is_sent_everything(
    server: ScriptedServer, collector: Collector, tmp_path: Path
) -> None:
    server.answers = [Answer(405), STORED]
    (sent,) = ProgramSender(collector).send(stacks(program(tmp_path / "shop", b"shop")))
    assert sent.outcome == "sent"


def test_what_is_refused_or_gone_is_told_and_the_rest_sent(
    server: ScriptedServer, collector: Collector, tmp_path: Path
) -> None:
    files = [program(tmp_path / name, name.encode()) for name in ("shop", "bank", "till")]
    problem = json.dumps({"title": "Bad Request", "detail": "it has no symbols"}).encode()
    refusal = Answer(400, {"Content-Type": "application/problem+json"}, problem)
    every = stacks(*files)
    files[1].unlink()
    server.answers = [LACKING, refusal, LACKING, LACKING, STORED]
    outcomes = [sent.outcome for sent in ProgramSender(collector).send(every)]
    assert outcomes == ["it has no symbols", "the file is gone, or is of another build", "sent"]
    server.answers = [LACKING]
    (another,) = ProgramSender(collector).send(stacks(files[0], build_id="abcd"))
    assert "another build" in another.outcome


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([Answer(403)], KeyRefused),
        ([Answer(503)], CollectorUnavailable),
        ([LACKING, Answer(501)], SubmitRefused),
    ],
)
def test_what_no_program_could_be_sent_by_ends_it(
    server: ScriptedServer,
    collector: Collector,
    answers: list[Answer],
    error: type[Exception],
    tmp_path: Path,
) -> None:
    server.answers = answers
    with pytest.raises(error):
        ProgramSender(collector).send(stacks(program(tmp_path / "shop", b"shop")))


@needs_gcc
@pytest.mark.system("llvm-objcopy", "readelf")
def test_code_is_left_out_and_names_are_kept(
    server: ScriptedServer, collector: Collector, tmp_path: Path
) -> None:
    busy = build(tmp_path)
    server.answers = [LACKING, STORED]
    (sent,) = ProgramSender(collector).send(stacks(busy))
    assert sent.outcome == "sent"
    copy = tmp_path / "copy"
    copy.write_bytes(server.seen[-1].body)
    listed = subprocess.run(["readelf", "-SsW", copy], capture_output=True, text=True, check=True).stdout
    assert ".text             NOBITS" in listed
    assert " main\n" in listed
    assert Elf.read(copy).build_id == Elf.read(busy).build_id


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--symbols"], "--symbols needs --url and --key-file"),
        (["--symbols", "--url", "http://127.0.0.1:1"], "--symbols needs --url and --key-file"),
        (["--service", "shop"], "--url, --key-file and --service are for --symbols"),
    ],
)
@pytest.mark.parametrize("command", [["capture", "-o", "cpu.pb.gz"], ["latency", "offcpu"]])
def test_arguments_that_do_not_fit_are_refused(command: list[str], arguments: list[str], reason: str) -> None:
    done = run_agent([*command, *arguments])
    assert (done.returncode, reason in done.stderr) == (2, True)


@pytest.mark.usefixtures("stand_ins")
def test_capture_says_what_became_of_each_program(server: ScriptedServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    capture = ["capture", "--profiler", "perf", "--executable", "json", "-o", str(tmp_path / "cpu.pb.gz")]
    to = ["--symbols", "--url", server.url, "--key-file", str(key), "--service", "shop"]
    server.then = THERE
    done = run_agent([*capture, "--duration", "0.3", "--json", *to])
    assert done.returncode == 0, done.stderr
    programs = json.loads(done.stdout)["programs"]
    profile = parsed((tmp_path / "cpu.pb.gz").read_bytes())
    texts = [text.decode() for text in profile.string_table]
    mapped = [mapping for mapping in profile.mapping if texts[mapping.filename].startswith("/")]
    builds = {texts[mapping.build_id] for mapping in mapped} - {""}
    # The sampled program is Python, which may have been linked without a build id.
    assert [(each["build_id"], each["outcome"]) for each in programs] == [(of, "there") for of in builds]
    assert {f"/v1/binaries/{each['build_id']}?service=shop" for each in programs} == {
        seen.path for seen in server.seen
    }


def test_serve_sends_in_the_background_and_logs_what_became_of_it(
    server: ScriptedServer, collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    files = [program(tmp_path / name, name.encode()) for name in ("shop", "bank")]
    server.answers, server.then = [Answer(503), LACKING, STORED, LACKING], Answer(400)
    programs = BackgroundPrograms(collector)
    logged = (
        "programs not sent: reason=",
        f"program sent: file={files[0]}",
        f"program not sent: file={files[1]}",
    )
    deadline = time.monotonic() + 60
    while not all(text in caplog.text for text in logged):
        assert time.monotonic() < deadline, caplog.text
        programs.add(stacks(*files))
        time.sleep(0.01)
    seen = len(server.seen)
    programs.add(stacks(*files))
    assert len(server.seen) == seen == 5


def test_serve_needs_a_collector_to_send_to() -> None:
    done = run_agent(["serve", "--bind", "127.0.0.1:0", "--symbols"])
    assert (done.returncode, "--symbols needs --url" in done.stderr) == (2, True)
