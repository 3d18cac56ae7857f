"""The measurement of gains: it refuses builds that differ, keeps the other rows of its page, and runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gains import page, run
from tests.gains.builds import FLAGS, NotComparableError, Toolchain, flow_flags, shared_flags
from tests.gains.costs import Compared, in_turns, instructions
from tests.gains.page import INSTRUMENTED, NONE, OURS, Built, Gain, Latency
from tests.gains.programs import PROGRAMS, ROOT

needs_tools = pytest.mark.system("clang", "gcc", "llvm-profdata", "perf", "valgrind")


def can_count() -> bool:
    """Say whether clang can build instrumented programs: its runtime is a package of its own."""
    if shutil.which("clang") is None:
        return False
    asked = ["clang", "-print-runtime-dir"]
    folder = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    return (Path(folder) / "libclang_rt.profile-x86_64.a").exists()


def built(folder: Path, name: str, *flags: str, compiler: str = "clang") -> Path:
    source = folder / "program.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, *flags, "-o", folder / name, source], check=True)
    return folder / name


@needs_tools
def test_builds_that_differ_in_their_profile_alone_compare(tmp_path: Path) -> None:
    (tmp_path / "some.prof").write_text("main:10:0\n 0: 10\n")
    flow = flow_flags(Toolchain("clang"), PROGRAMS["sqlite"].flow)
    guided = ("-fprofile-sample-use=" + str(tmp_path / "some.prof"), *flow)
    (tmp_path / "counts.txt").write_text(":fe\nmain\n0\n1\n10\n")
    counts = Toolchain("clang").merge_counts(tmp_path / "counts.txt")
    builds = {
        "none": built(tmp_path, "none", *FLAGS),
        "ours": built(tmp_path, "ours", *FLAGS, *guided),
        "instrumented": built(tmp_path, "instrumented", *FLAGS, f"-fprofile-instr-use={counts}"),
    }
    shared = shared_flags(builds)
    assert "-O2" in shared
    assert "profile" not in shared.replace("-fdebug-info-for-profiling", "")


@needs_tools
def test_a_program_may_have_its_own_flags_compiled_in(tmp_path: Path) -> None:
    """PostgreSQL has such texts, which pg_config prints."""
    (tmp_path / "some.prof").write_text("main:10:0\n 0: 10\n")
    guided = ("-fprofile-sample-use=" + str(tmp_path / "some.prof"), *flow_flags(Toolchain("clang")))
    builds = {
        name: built(tmp_path, name, *FLAGS, *flags, f'-DOWN="{" ".join((*FLAGS, *flags))}"')
        for name, flags in {"none": (), "ours": guided}.items()
    }
    assert "OWN" in shared_flags(builds)


@needs_tools
@pytest.mark.parametrize(
    ("flags", "reason"),
    [(("-O3",), "-O3"), (("-funroll-loops",), "-funroll-loops"), (("-fprofile-generate",), "-fpro")],
)
def test_builds_with_other_flags_are_refused(tmp_path: Path, flags: tuple[str, ...], reason: str) -> None:
    builds = {"none": built(tmp_path, "none", *FLAGS), "other": built(tmp_path, "other", *FLAGS, *flags)}
    with pytest.raises(NotComparableError, match=reason):
        shared_flags(builds)


@needs_tools
def test_builds_of_other_compilers_or_without_their_flags_are_refused(tmp_path: Path) -> None:
    plain = built(tmp_path, "plain", *FLAGS)
    other = built(tmp_path, "other", "-O2", "-frecord-gcc-switches", compiler="gcc")
    with pytest.raises(NotComparableError, match="clang"):
        shared_flags({"plain": plain, "other": other})
    with pytest.raises(NotComparableError, match="-frecord-command-line"):
        shared_flags({"plain": plain, "silent": built(tmp_path, "silent", "-O2")})


@needs_tools
def test_instructions_grow_with_the_work(tmp_path: Path) -> None:
    source = tmp_path / "work.c"
    source.write_text(
        "#include <stdlib.h>\nint main(int n, char **words) {"
        "volatile int sum = 0; for (int i = 0; i < atoi(words[1]); i++) sum += i; return n != 2; }\n"
    )
    subprocess.run(["clang", "-O1", "-o", tmp_path / "work", source], check=True)
    few, many = (instructions(tmp_path / "work", [count], tmp_path) for count in ("100", "200000"))
    assert many > 2 * few


def test_builds_take_turns(tmp_path: Path) -> None:
    order = tmp_path / "order"
    commands = {name: ["sh", "-c", f"echo {name} >> {order}"] for name in ("one", "other")}
    costs = in_turns(commands, 3, tmp_path)
    assert order.read_text().split() == ["one", "other"] * 3
    assert costs["one"][1:] == (1.0, 1.0, 1.0)


def gain_of(program: str, fewer: int) -> Gain:
    timed = {name: Compared(1.0, 1.1, 1.0, 1.2) for name in (NONE, OURS, INSTRUMENTED)}
    ours = [100_000_000 - fewer - more for more in (0, 2_000_000, -1_000_000)]
    counted = {NONE: [100_000_000], OURS: ours, INSTRUMENTED: [80_000_000]}
    return Gain(program, "clang 14", f"make gains {program}", counted, timed, "measured like this")


def test_rows_of_other_programs_and_other_sections_stay(tmp_path: Path) -> None:
    written = tmp_path / "gains.md"
    page.write(written, gain_of("lua", 10_000_000))
    written.write_text(written.read_text() + "\n## An account\n\nkept\n")
    page.write(written, gain_of("json", 0))
    page.write(written, gain_of("lua", 15_000_000))
    text = written.read_text()
    assert "## An account\n\nkept\n" in text
    rows = page.read(text)
    assert [(row.program, row.profile) for row in rows] == [
        (program, profile) for program in ("lua", "json") for profile in (NONE, OURS, INSTRUMENTED)
    ]
    ours = {row.program: row for row in rows if row.profile == OURS}
    assert (ours["json"].saved, ours["json"].share) == ("0.0 %", "0 % (-5 to 10)")
    assert (ours["lua"].saved, ours["lua"].share, ours["lua"].instructions) == (
        "15.0 %",
        "75 % (70 to 85)",
        "85 M",
    )
    assert ours["lua"].ratio == "1.10 (1.00 to 1.20)"
    assert [row.kind for row in rows[::3]] == ["interpreter", "text"]


def test_builds_and_latencies_of_go_programs_have_a_table(tmp_path: Path) -> None:
    written = tmp_path / "gains.md"
    served = {NONE: Latency(1.5, 20), OURS: Latency(1.25, 16)}
    for program, latencies in (("pages", served), ("esbuild", {}), ("pages", served)):
        built = {NONE: Built(20_000_000, 40.0), OURS: Built(21_040_000, 45.5)}
        gained = gain_of(program, 0)._replace(built=built, latencies=latencies)
        page.write(written, gained)
    table = written.read_text().partition("## What a Go build costs")[2].partition("\n## ")[0].splitlines()
    assert table[4:] == [
        "| esbuild | none | 20.0 MB | 40.00 s |  |  |",
        "| esbuild | ours | 21.0 MB | 45.50 s |  |  |",
        "| pages | none | 20.0 MB | 40.00 s | 1.50 ms | 20.00 ms |",
        "| pages | ours | 21.0 MB | 45.50 s | 1.25 ms | 16.00 ms |",
    ]


def test_what_was_measured_here_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_DONE", tmp_path)
    (tmp_path / "lua-clang").touch()
    written = page.FILE.read_text()
    assert run.main(["lua"]) == 0
    assert "was measured here before; measure it again with --again" in capsys.readouterr().out
    assert page.FILE.read_text() == written


@needs_tools
@pytest.mark.skipif(not can_count(), reason="missing: clang's runtime for instrumented builds")
@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.alike(1, family="measuring suites")
def test_the_tutorials_program_is_measured(tmp_path: Path) -> None:
    """Takes half a minute: it profiles three runs, and Valgrind runs each of four builds."""
    command = [
        sys.executable,
        "-m",
        "tests.gains.run",
        "json",
        "--profiles",
        "1",
        "--rounds",
        "1",
        "--page",
        str(tmp_path / "gains.md"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    rows = {row.profile: row for row in page.read((tmp_path / "gains.md").read_text())}
    assert [*rows] == [NONE, OURS, "ours, with the program", INSTRUMENTED]
    for profile in (OURS, "ours, with the program", INSTRUMENTED):
        assert float(rows[profile].saved.split()[0]) > 0
