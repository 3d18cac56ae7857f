"""How much of a profile is in functions that a program still has, of real programs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pprof_merge import inflate
from pprof_proto.profile_pb2 import Profile

from tests.interop.go_toolchain import ENVIRONMENT, ROOT, go
from tests.merge.command.installed import pprof_merge
from tests.oracle.oracle import GO

pytestmark = pytest.mark.exhaustive  # tests/merge/analysis/test_report.py has the tables of made-up programs

# A generic function, a method, a closure, one that is always inlined, and assembly.
KINDS = (
    b"main.convert[go.shape.int,go.shape.interface { ",
    b"main.(*counter).count",
    b"main.work.func",
    b"main.squares",
    b"sha256.block",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    go("build", "-o", folder / "program", program="names")
    return folder / "program"


@pytest.fixture(scope="module")
def profile(folder: Path, program: Path) -> Path:
    """Return the profile of a run that met code of every kind; by chance, that may take some runs."""
    file = folder / "cpu.pb.gz"
    for _ in range(10):
        subprocess.run([program, file, "2"], check=True, stdout=subprocess.DEVNULL)
        met = Profile.FromString(inflate(file.read_bytes()))
        text = b" ".join(met.string_table)
        if all(name in text for name in KINDS) and any(KINDS[0] in name for name in with_own_samples(met)):
            return file
    raise AssertionError(f"{KINDS} are not all in {text!r}, or the first has no sample of its own")


def with_own_samples(profile: Profile) -> set[bytes]:
    """The functions whose code was running; that of one that is inlined is its caller's."""
    names = {function.id: profile.string_table[function.name] for function in profile.function}
    code = {of.id: names[of.line[-1].function_id] for of in profile.location if of.line}
    return {code.get(sample.location_id[0], b"") for sample in profile.sample}


def symbols_of(folder: Path, program: Path, *options: str) -> Path:
    symbols = folder / "symbols"
    symbols.write_text(go("tool", "nm", *options, program))
    return symbols


def coverage(profile: Path, symbols: Path) -> dict[str, Any]:
    finished = pprof_merge("-o", "/dev/null", "--report", "-", "--symbols", symbols, profile)
    assert (finished.returncode, finished.stderr) == (0, b"")
    found: dict[str, Any] = json.loads(finished.stdout)["coverage"]
    for shares in (found["functions"], found["edges"]):
        assert sum(shares.values()) == pytest.approx(1)
    return found


@pytest.mark.parametrize("options", [[], ["-size"], ["-n", "-size"]])
def test_a_program_has_all_functions_of_its_own_profile(
    folder: Path, program: Path, profile: Path, options: list[str]
) -> None:
    found = coverage(profile, symbols_of(folder, program, *options))
    assert found["symbols"] > 1000
    assert found["functions"]["present"] == pytest.approx(1)
    assert found["missing"] == []
    # What is always inlined has no symbol, which must not look as if it were gone.
    assert found["edges"]["missing"] == 0
    assert found["edges"]["present"] > 0
    assert found["edges"]["unknown"] > 0


@pytest.mark.system("nm")
def test_nm_of_the_system_does_too(folder: Path, program: Path, profile: Path) -> None:
    symbols = folder / "symbols"
    symbols.write_bytes(subprocess.run(["nm", program], check=True, capture_output=True).stdout)
    assert coverage(profile, symbols)["functions"]["present"] == pytest.approx(1)


def test_what_a_changed_program_lacks_is_missing(folder: Path, program: Path, profile: Path) -> None:
    before = coverage(profile, symbols_of(folder, program))
    changed = folder / "changed"
    shutil.copytree(ROOT / "names", changed)
    source = (changed / "main.go").read_text()
    (changed / "main.go").write_text(
        source.replace(" convert[", " transform[").replace("convert(", "transform(")
    )
    subprocess.run([GO, "build", "-o", folder / "anew", "."], cwd=changed, env=ENVIRONMENT, check=True)
    after = coverage(profile, symbols_of(folder, folder / "anew"))
    assert {entry["function"].split("[")[0] for entry in after["missing"]} == {"main.convert"}
    missing = sum(entry["share"] for entry in after["missing"])
    assert after["functions"]["missing"] == pytest.approx(missing)
    assert after["functions"]["present"] == pytest.approx(1 - missing)
    assert 0 < missing < 0.5
    assert after["edges"]["missing"] > 0
    assert after["edges"]["present"] < before["edges"]["present"]
