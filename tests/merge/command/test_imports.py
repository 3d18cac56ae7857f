"""The imports of the command and the package: NumPy only where arrays are wanted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pprof_merge.compiled
import pytest

_COMMAND = "import pprof_merge.command.cli as cli; status = cli.main(sys.argv[1:])"


def imported(code: str, *arguments: str | Path) -> set[str]:
    """Return the modules that a new process has imported after it ran some code."""
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules, file=sys.stderr)", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return {*shown.stderr.split()}


def test_the_package_is_imported_without_numpy() -> None:
    modules = imported("import pprof_merge")
    assert "pprof_merge.merging.batch" in modules
    # They take as long to import as all of the engine.
    assert not modules & {"numpy", "dataclasses", "inspect", "ctypes"}


@pytest.mark.parametrize("wanted", ["pprof", "go"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_merge_is_written_without_numpy(wanted: str, jobs: str, profiles: Path, tmp_path: Path) -> None:
    files = sorted(profiles.glob("lintd-*"))
    out = tmp_path / "out"
    modules = imported(_COMMAND, "-j", jobs, "--format", wanted, "-o", out, *files)
    assert out.stat().st_size
    assert "numpy" not in modules


def test_a_merge_imports_no_more_than_it_takes(profiles: Path, tmp_path: Path) -> None:
    modules = imported(_COMMAND, "-o", tmp_path / "out", *profiles.glob("lintd-*"))
    # Parsers of options and texts, archives (argparse asks for the terminal's width), loaders, and OpenSSL.
    unneeded = {"argparse", "gettext", "shutil", "importlib.util", "pprof_proto.other_formats", "hashlib"}
    assert not modules & unneeded


def test_an_installed_wheel_reads_no_source_and_hashes_nothing(profiles: Path, tmp_path: Path) -> None:
    if pprof_merge.ENGINE != "compiled":
        pytest.skip("needs gcc and Python's headers: make setup")
    copy = tmp_path / "pprof_merge"
    shutil.copytree(pprof_merge.compiled.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    of_sources = copy / "_compiled" / Path(pprof_merge.compiled.folder()).name
    of_sources.rename(of_sources.with_name(pprof_merge.compiled.IN_WHEELS))
    there = (
        f"sys.path.insert(0, {str(tmp_path)!r}); {_COMMAND}; assert cli.__file__.startswith({str(copy)!r})"
    )
    modules = imported(there, "-o", tmp_path / "out", *profiles.glob("lintd-*"))
    assert "pprof_merge_engine__mypyc" in modules
    assert not modules & {"hashlib", "_hashlib"}  # OpenSSL


def test_named_tuples_are_made_without_compiling_their_annotations() -> None:
    postponed = (
        "import pprof_merge.command.cli, typing; sys.exit(str([each for module in [*sys.modules.values()]"
        " if module.__name__.startswith('pprof_merge') for each in vars(module).values()"
        " if isinstance(each, type) and issubclass(each, tuple)"
        " for kind in each.__annotations__.values() if isinstance(kind, typing.ForwardRef)] or ''))"
    )
    command = [sys.executable, "-c", f"import sys; {postponed}"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip() == ""


def test_weights_are_summed_with_numpy(profiles: Path, tmp_path: Path) -> None:
    files = sorted(profiles.glob("lintd-*"))
    assert "numpy" in imported(_COMMAND, "--weight", "duration", "-o", tmp_path / "out", *files)
