"""The command `pprof-merge`: its streams, exit status, messages and files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from pprof_merge import Collection, Weighting, compress, decode, encode, inflate, merge
from pprof_merge.analysis.rules import apply_rules, parse_rules
from pprof_merge.command.options import Options, read_options
from pprof_merge.command.parser import parser
from pprof_merge.formats import FORMATS
from pprof_proto.profile_pb2 import Profile

from tests.faults.stacks import DAY, profile_of
from tests.merge.command.installed import PPROF_MERGE, pprof_merge
from tests.merge.malformed import WHOLE
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from pathlib import Path


def test_output_goes_to_standard_output(files: list[Path], expected: bytes) -> None:
    finished = pprof_merge(*files)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, expected, b"")
    assert pprof_merge("-o", "-", *files).stdout == expected


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_output_goes_to_a_file(option: str, files: list[Path], expected: bytes, tmp_path: Path) -> None:
    out = tmp_path / "default.pgo"
    finished = pprof_merge(option, out, *files)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, b"", b"")
    assert out.read_bytes() == expected
    assert [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize(
    "arguments",
    [["a"], ["a", "-", "b"], ["-o", "out", "a", "b"], ["-o", "-", "-"], ["-o", "", ""], ["a", "-o", "out"]],
    ids=" ".join,
)
def test_plain_options_are_what_the_parser_takes_them_for(arguments: list[str]) -> None:
    assert read_options(arguments) == Options(**vars(parser().parse_args(arguments)))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-o"],
        ["-o", "out"],
        ["-o", "--", "a"],
        ["-o", "-x", "a"],
        ["a", "-x"],
        ["a", "-o", "out", "b"],
        ["--"],
    ],
    ids=" ".join,
)
def test_what_the_parser_refuses_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        read_options(arguments)
    assert "usage: pprof-merge" in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["1", "2", "3", "9"])
def test_several_processes_make_the_same(jobs: str, files: list[Path], expected: bytes) -> None:
    finished = pprof_merge("-j", jobs, *files)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, expected, b"")
    assert pprof_merge("--jobs", jobs, *files).stdout == expected


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_a_number_of_processes_is_a_whole_one_from_1_on(jobs: str, files: list[Path]) -> None:
    finished = pprof_merge(f"--jobs={jobs}", *files)
    assert finished.returncode == 2
    assert b"is not a whole number of 1 or more" in finished.stderr


def test_what_another_process_refuses_is_named(files: list[Path], tmp_path: Path) -> None:
    flawed, other = tmp_path / "flawed", tmp_path / "other"
    flawed.write_bytes(WHOLE[:-1])
    other.write_bytes(WHOLE)
    for last, words in (
        (flawed, f"{flawed}: ".encode()),
        (tmp_path / "none", b"none: No such file"),
        (other, f"{other}: different period types".encode()),
    ):
        finished = pprof_merge("-j", "2", *files, last)
        assert (finished.returncode, finished.stdout) == (2, b"")
        assert words in finished.stderr
    finished = pprof_merge("-j", "3", *files[:2], other)
    assert f"{other}: different period types".encode() in finished.stderr


def test_an_output_file_is_as_public_as_the_umask_says(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "default.pgo"
    subprocess.run([PPROF_MERGE, "-o", out, *files], check=True, umask=0o027)
    assert out.stat().st_mode & 0o777 == 0o640


def test_an_output_file_may_be_one_of_the_inputs(files: list[Path], expected: bytes, tmp_path: Path) -> None:
    out = tmp_path / "default.pgo"
    out.write_bytes(files[0].read_bytes())
    assert pprof_merge("-o", out, out, *files[1:]).returncode == 0
    assert out.read_bytes() == expected


def test_a_dash_is_standard_input(files: list[Path], expected: bytes) -> None:
    finished = pprof_merge(files[0], "-", files[2], stdin=files[1].read_bytes())
    assert (finished.returncode, finished.stdout) == (0, expected)


def test_files_may_be_bare_protobuf(files: list[Path], expected: bytes, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_bytes(inflate(files[0].read_bytes()))
    assert pprof_merge(bare, *files[1:]).stdout == expected


def test_files_may_be_larger_than_a_servers_limits(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(WHOLE + b"\x32\x00" * (9 << 20))
    assert pprof_merge(large).returncode == 0


def test_it_writes_to_what_is_no_file(files: list[Path], expected: bytes, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([PPROF_MERGE, "-o", pipe, *files]) as command:
        assert pipe.read_bytes() == expected
        assert command.wait() == 0
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", FORMATS)
def test_the_merge_comes_in_any_format(name: str, profiles: Path) -> None:
    files = sorted(profiles.glob("apisvc-v1-*"))
    finished = pprof_merge("--format", name, *reversed(files))
    assert (finished.returncode, finished.stderr) == (0, b"")
    profile = merge(decode(file.read_bytes()) for file in files)
    assert finished.stdout == FORMATS[name].write(profile)


def test_a_format_that_is_none_is_refused_by_its_flag(files: list[Path]) -> None:
    finished = pprof_merge("--format", "svg", *files)
    assert finished.returncode == 2
    assert b"argument --format: invalid choice: 'svg'" in finished.stderr
    assert all(name.encode() in finished.stderr for name in FORMATS)


def test_a_format_that_cannot_be_made_is_refused_by_its_flag(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_bytes(b"\x32\x00")  # a string table with the empty string only, and no sample type
    finished = pprof_merge("--format", "folded", bare)
    assert finished.returncode == 2
    assert finished.stderr == b"pprof-merge: --format folded: it has no sample type\n"


RULES = b"drop runtime.mallocgc\nnoinline /crypto.*/\n"


@pytest.mark.parametrize("name", ["pprof", "folded", "go", "llvm"])
def test_rules_apply_to_the_merge(name: str, files: list[Path], tmp_path: Path) -> None:
    rules = tmp_path / "default.rules"
    rules.write_bytes(RULES)
    finished = pprof_merge("--rules", rules, "--format", name, *files)
    assert (finished.returncode, finished.stderr) == (0, b"")
    whole = merge(decode(file.read_bytes()) for file in files)
    profile = apply_rules(whole, parse_rules(RULES))
    assert finished.stdout == FORMATS[name].write(profile)
    assert encode(profile) != encode(whole)
    assert pprof_merge("--rules", "-", "--format", name, *files, stdin=RULES).stdout == finished.stdout


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file or directory"), (b"a", "line 1: unknown rule 'a'")]
)
def test_bad_rules_are_named_and_nothing_is_left(
    content: bytes | None, words: str, files: list[Path], tmp_path: Path
) -> None:
    rules, out = tmp_path / "in" / "default.rules", tmp_path / "out" / "default.pgo"
    rules.parent.mkdir()
    out.parent.mkdir()
    if content is not None:
        rules.write_bytes(content)
    finished = pprof_merge("--rules", rules, "-o", out, *files)
    assert finished.returncode == 2
    assert finished.stderr.startswith(f"pprof-merge: {rules}: {words}".encode())
    assert [*out.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("options", "weighting"),
    [
        (["--weight", "duration"], Weighting("duration")),
        (["--weight", "version", "--half-life", "7d"], Weighting("version", 7 * 86_400 * 10**9)),
        (["--half-life", "90s", "-j", "2"], Weighting("sum", 90 * 10**9)),
    ],
)
def test_weights_go_before_rules_and_formats(
    options: list[str], weighting: Weighting, files: list[Path], tmp_path: Path
) -> None:
    rules = tmp_path / "default.rules"
    rules.write_bytes(RULES)
    collection = Collection()
    for file in files:
        collection.add(file.read_bytes())
    weighted = collection.merge(weighting=weighting)
    assert encode(weighted) != encode(collection.merge())
    finished = pprof_merge(*options, *reversed(files))
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, compress(encode(weighted)), b"")
    finished = pprof_merge(*options, "--rules", rules, "--format", "folded", *files)
    assert finished.stdout == FORMATS["folded"].write(apply_rules(weighted, parse_rules(RULES)))


def test_a_profile_from_after_now_does_not_outweigh_the_others(tmp_path: Path) -> None:
    files = []
    for stack, days in (("a", 0), ("b", 0), ("ahead", 365)):
        files.append(tmp_path / stack)
        files[-1].write_bytes(profile_of(stack, time_nanos=time.time_ns() + days * DAY))
    for jobs in ("1", "2"):
        merged = pprof_merge("--half-life", "7d", "-j", jobs, *files).stdout
        values = [sample.value[1] for sample in Profile.FromString(inflate(merged)).sample]
        assert max(values) == pytest.approx(min(values), rel=0.01)


def test_sum_is_the_merge(files: list[Path], expected: bytes) -> None:
    assert pprof_merge("--weight", "sum", *files).stdout == expected


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--weight", "median", b"argument --weight: invalid choice: 'median'"),
        (
            "--half-life",
            "7",
            b"argument --half-life: '7' is not a half-life; write a number from 1 to 999999 and a unit",
        ),
    ],
)
def test_a_weight_that_is_none_is_refused_by_its_flag(
    option: str, value: str, words: bytes, files: list[Path]
) -> None:
    finished = pprof_merge(option, value, *files)
    assert finished.returncode == 2
    assert words in finished.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_cannot_be_weighed_is_named(jobs: str, files: list[Path], tmp_path: Path) -> None:
    profile = Profile.FromString(inflate(files[1].read_bytes()))
    profile.duration_nanos = 0
    timeless = tmp_path / "timeless"
    timeless.write_bytes(profile.SerializeToString())
    finished = pprof_merge("-j", jobs, "--weight", "duration", files[0], timeless, files[2])
    assert (finished.returncode, finished.stdout) == (2, b"")
    assert finished.stderr == f"pprof-merge: {timeless}: it has no duration to be weighed by\n".encode()
    assert pprof_merge("--weight", "instance", files[0], timeless).returncode == 0


BAD = {
    "missing": (None, b"No such file or directory"),
    "text": (b"not a profile", b"this is text"),
    "empty": (b"", b"the input is empty"),
    "cut": (compress(WHOLE)[:-9], b"gzip"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_input_is_named_and_nothing_is_left(name: str, files: list[Path], tmp_path: Path) -> None:
    content, words = BAD[name]
    bad, out = tmp_path / "in" / name, tmp_path / "out" / "default.pgo"
    bad.parent.mkdir()
    out.parent.mkdir()
    if content is not None:
        bad.write_bytes(content)
    finished = pprof_merge("-o", out, files[0], bad, files[1])
    assert finished.returncode == 2
    assert finished.stdout == b""
    assert finished.stderr.startswith(f"pprof-merge: {bad}: ".encode())
    assert words in finished.stderr
    assert finished.stderr.count(b"\n") == 1
    assert [*out.parent.iterdir()] == []


def test_after_an_error_the_old_output_is_whole(files: list[Path], tmp_path: Path) -> None:
    bad, out = tmp_path / "bad", tmp_path / "default.pgo"
    bad.write_bytes(b"not a profile")
    out.write_bytes(b"what was there")
    assert pprof_merge("-o", out, *files, bad).returncode == 2
    assert out.read_bytes() == b"what was there"
    assert sorted(tmp_path.iterdir()) == [bad, out]


def test_a_folder_is_named_as_such(tmp_path: Path) -> None:
    finished = pprof_merge(tmp_path)
    assert finished.returncode == 2
    assert finished.stderr == f"pprof-merge: {tmp_path}: Is a directory\n".encode()


def test_bad_standard_input_is_named(files: list[Path]) -> None:
    finished = pprof_merge(files[0], "-", stdin=b"not a profile")
    assert finished.returncode == 2
    assert finished.stderr.startswith(b"pprof-merge: -: ")


def test_profiles_of_other_types_are_named(files: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(WHOLE)
    finished = pprof_merge(*files, other)
    assert finished.returncode == 2
    assert b"types" in finished.stderr
    assert bytes(other) in finished.stderr


@pytest.mark.parametrize("out", ["nowhere/default.pgo", "."])
def test_an_output_that_cannot_be_is_named(out: str, files: list[Path], tmp_path: Path) -> None:
    finished = pprof_merge("-o", tmp_path / out, *files)
    assert finished.returncode == 2
    assert finished.stderr.startswith(f"pprof-merge: {tmp_path / out}: ".encode())
    assert [*tmp_path.iterdir()] == []


def test_a_full_disk_is_an_error(files: list[Path]) -> None:
    finished = pprof_merge("-o", "/dev/full", *files)
    assert finished.returncode == 2
    assert finished.stderr == b"pprof-merge: /dev/full: No space left on device\n"


def test_an_output_cut_short_leaves_nothing(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "default.pgo"
    limited = ["sh", "-c", 'ulimit -f 1 && exec "$@"', "sh", str(PPROF_MERGE), "-o", str(out)]
    without_caches = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # Python would cut those, too
    finished = subprocess.run([*limited, *files], env=without_caches, capture_output=True, check=False)
    assert finished.returncode == 2
    assert finished.stderr == f"pprof-merge: {out}: File too large\n".encode()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("arguments", [[], ["-o", "out"], ["--unknown", "file"]])
def test_wrong_usage_is_explained(arguments: list[str]) -> None:
    finished = pprof_merge(*arguments)
    assert finished.returncode == 2
    assert finished.stderr.startswith(b"usage: pprof-merge")


def test_help_names_every_option() -> None:
    finished = pprof_merge("--help")
    assert finished.returncode == 0
    assert all(word in finished.stdout for word in (b"-o", b"--output", b"FILE", b"Exit status"))


def test_a_reader_that_leaves_is_no_traceback(profiles: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        finished = subprocess.run(
            [PPROF_MERGE, *sorted(profiles.glob("*.gz"))], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert finished.returncode == 2
    assert finished.stderr == b"pprof-merge: standard output: the reader closed it\n"


def test_a_person_sees_progress(files: list[Path], tmp_path: Path) -> None:
    status, shown = on_terminal(PPROF_MERGE, "-o", tmp_path / "default.pgo", *files)
    assert status == 0
    assert b"/3" in shown
    assert b"profile" in shown


def test_a_terminal_is_not_spared_text(files: list[Path]) -> None:
    status, shown = on_terminal(PPROF_MERGE, "--format", "folded", *files, output_too=True)
    assert status == 0
    assert b"main.main.func1;" in shown


def test_a_start_imports_no_format_but_the_one_asked_for(files: list[Path]) -> None:
    """The start takes as long as merging ten profiles."""
    code = (
        "import sys; from pprof_merge.command.cli import main; assert main(sys.argv[1:]) == 0;"
        "print(*(name for name in sys.modules if name.startswith('pprof_merge.formats.') or name == 'json'))"
    )
    for name in ("pprof", "folded"):
        options = ["--format", name, "-o", os.devnull, *map(str, files)]
        command = [sys.executable, "-c", code, *options]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert shown.split() == [f"pprof_merge.formats.{name}"]


def test_a_terminal_is_spared_the_bytes(files: list[Path]) -> None:
    status, shown = on_terminal(PPROF_MERGE, *files, output_too=True)
    assert status == 2
    assert b"standard output is a terminal" in shown
    assert b"\x1f\x8b" not in shown
