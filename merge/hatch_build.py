"""Compiles the engine with mypyc, for wheels and for the checkout (`python merge/hatch_build.py`).

Without a C compiler or Python's headers it warns, and the engine is interpreted: slower, with the same
results. With PPROF_MERGE_PGO=1 in the environment gcc compiles it twice: first to count what runs while
`train_engine.py` merges profiles, and then by these counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
PACKAGE = ROOT / "pprof_merge"
# The first two are Python's own, which setuptools leaves out where CFLAGS is set: sums wrap, nothing asserts.
# One group is one C file, whose functions gcc inlines into each other with the others.
_FLAGS = (
    "-fwrapv -DNDEBUG -fno-semantic-interposition -fvisibility=hidden --param max-inline-insns-auto=120 -g0"
)
# Modules that the compiled ones import, and which stay as they are.
_IMPORTED = ("errors", "limits")
# Counts must not depend on addresses, which differ from run to run: values are not counted.
_COUNTING = "-fprofile-generate -fprofile-update=single -fno-profile-values"
# What the training doesn't run is compiled as without it, and not for size.
_COUNTED = "-fprofile-use -fprofile-partial-training -Wno-missing-profile"
# The variable that asks for the training; a file in the folder of what is compiled so; and the profiles.
_PGO = "PPROF_MERGE_PGO"
_TRAINED = "trained"
TRAINING_PROFILES = ROOT.parent / "tests" / "testdata" / "profiles"


class CompiledEngine(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled engine into a wheel. A checkout is compiled by `make setup`, beside pip."""

    _folder = ""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the engine, and tell hatchling what to add."""
        if self.target_name != "wheel" or version == "editable" or os.environ.get("PPROF_MERGE_PURE"):
            return
        self._folder = tempfile.mkdtemp()
        try:
            _build(Path(self._folder))
        except (ImportError, OSError, subprocess.CalledProcessError) as reason:
            self.app.display_warning(f"the engine is not compiled, and will be slow: {_words(reason)}")
            return
        inside = f"pprof_merge/_compiled/{_compiled().IN_WHEELS}"
        build_data.update(pure_python=False, infer_tag=True, force_include={self._folder: inside})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete what was compiled, which is in the wheel."""
        del version, build_data, artifact_path
        shutil.rmtree(self._folder, ignore_errors=True)


def is_compiled() -> bool:
    """Return whether the engine of these sources is there, compiled, and trained if that is asked for."""
    named = _compiled()
    folder = Path(named.folder())
    return (folder / f"{named.SHARED}.so").exists() and (not _asked() or (folder / _TRAINED).exists())


def compile_engine() -> Path:
    """Compile the engine unless that is done; return the folder of its modules.

    Raises OSError, ImportError if mypy is missing, and CalledProcessError if it or the compiler fails.
    """
    folder = Path(_compiled().folder())
    if is_compiled():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as built:
        _build(Path(built))
        # In a new folder that is then renamed, so that nobody imports half of a build.
        part = Path(tempfile.mkdtemp(dir=folder.parent))
        shutil.copytree(built, part, dirs_exist_ok=True)
        part.chmod(0o755)
    for old in folder.parent.iterdir():
        if old.suffix == folder.suffix and old != part:
            shutil.rmtree(old)
    part.rename(folder)
    return folder


def _build(folder: Path) -> None:
    """Compile the engine into a folder. Raises as `compile_engine` does."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        _copy_modules(tree)
        if _asked():
            _compile(tree, _COUNTING)
            _train(tree, Path(temporary) / "training")
            _compile(tree, _COUNTED)
            (folder / _TRAINED).touch()
        else:
            _compile(tree, "")
        _copy_built(tree, folder)


def _asked() -> bool:
    return os.environ.get(_PGO, "") not in {"", "0"}


def _copy_modules(tree: Path) -> None:
    """Copy the modules that are compiled, and those that they import, to a folder."""
    named = _compiled()
    for name in (*named.MODULES, *_IMPORTED):
        copy = tree / "pprof_merge" / f"{name.replace('.', '/')}.py"
        copy.parent.mkdir(parents=True, exist_ok=True)
        (copy.parent / "__init__.py").touch()
        shutil.copyfile(named.source(name), copy)
    (tree / "pprof_merge" / "__init__.py").touch()


def _compile(tree: Path, more_flags: str) -> None:
    """Compile the modules in a folder, in place."""
    # Folders differ from build to build, and are not to be in what is compiled; mypyc's is in the second.
    flags = f"{os.environ.get('CFLAGS', '')} {_FLAGS} {more_flags}"
    for folder_of_build in (tree, sys.prefix):
        flags += f" -ffile-prefix-map={folder_of_build}=."
    _run([sys.executable, __file__, "build_ext"], tree, CFLAGS=flags)


def _train(tree: Path, folder: Path) -> None:
    """Merge profiles with the engine that is compiled in `tree` and writes its counts there."""
    package = folder / "pprof_merge"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("_compiled", "__pycache__"))
    compiled = package / "_compiled" / Path(_compiled().folder()).name
    compiled.mkdir(parents=True)
    _copy_built(tree, compiled)
    path = os.pathsep.join(map(str, (folder, ROOT.parent / "proto")))
    command = [sys.executable, "-P", str(ROOT / "train_engine.py"), str(TRAINING_PROFILES)]
    _run(command, folder, PYTHONPATH=path, PYTHONHASHSEED="0")


def _copy_built(tree: Path, folder: Path) -> None:
    """Copy what was compiled in place, named as `compiled` looks for it."""
    for built in tree.rglob("*.so"):
        relative = built.relative_to(tree).as_posix().split(".", maxsplit=1)[0]
        if not relative.startswith("build/"):
            shutil.copyfile(built, folder / f"{relative.removeprefix('pprof_merge/').replace('/', '.')}.so")


def _run(command: list[str], folder: Path, **environment: str) -> None:
    """Run a command in a folder. Raises CalledProcessError, with what it has written."""
    subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )


def _compiled() -> Any:
    """Return the module `compiled`, without importing the package, which needs what isn't installed yet."""
    spec = spec_from_file_location("compiled", PACKAGE / "compiled.py")
    if spec is None or spec.loader is None:
        raise ImportError("compiled.py is missing")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _build_here() -> None:
    """Compile the copies of the modules in the current folder."""
    from mypyc.build import mypycify  # noqa: PLC0415 - the caller has no need of it
    from setuptools import Distribution  # type: ignore[import-untyped]  # noqa: PLC0415

    named = _compiled()
    files = [f"pprof_merge/{name.replace('.', '/')}.py" for name in named.MODULES]
    extensions = mypycify(
        ["--strict", "--explicit-package-bases", *files],
        opt_level=os.environ.get("PPROF_MERGE_OPTIMIZE", "3"),
        debug_level="0",
        group_name=named.GROUP,
    )
    command = Distribution({"name": named.GROUP, "ext_modules": extensions}).get_command_obj("build_ext")
    command.inplace = True
    command.force = True  # the sources are the same when the flags are others
    command.ensure_finalized()
    command.run()


def _words(reason: Exception) -> str:
    """Return what went wrong: of a failed command, the last lines that it wrote."""
    if isinstance(reason, subprocess.CalledProcessError):
        return "\n".join((reason.stdout + reason.stderr).strip().splitlines()[-5:])
    return str(reason)


def main() -> None:
    """Compile the engine of the checkout, or say why it is interpreted."""
    if sys.argv[1:] == ["build_ext"]:
        _build_here()
        return
    try:
        if not is_compiled():
            takes = "two minutes" if _asked() else "half a minute"
            print(f"Compiling the merge engine, which takes {takes}; what starts meanwhile is slower")
            compile_engine()
            print("The merge engine is compiled, for what starts from now on")
    except (ImportError, OSError, subprocess.CalledProcessError) as reason:
        print(
            "The engine is not compiled, and runs some thirty times slower; gcc and Python's headers are"
            f" missing (apt install gcc python3-dev), or this went wrong:\n{_words(reason)}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
