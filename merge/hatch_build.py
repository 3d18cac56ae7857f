"""Compiles the engine with mypyc, for wheels and for the checkout (`python merge/hatch_build.py`).

Without a C compiler or Python's headers it warns, and the engine is interpreted: slower, with the same
results.
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
# One group is one C file, whose functions gcc inlines into each other with these flags, and not without.
_FLAGS = "-fno-semantic-interposition -fvisibility=hidden --param max-inline-insns-auto=120 -g0"
# Modules that the compiled ones import, and which stay as they are.
_IMPORTED = ("errors", "limits")


class CompiledEngine(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled engine into a wheel. A checkout is compiled by `make setup`, beside pip."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the engine, and tell hatchling what to add."""
        if self.target_name != "wheel" or version == "editable" or os.environ.get("PPROF_MERGE_PURE"):
            return
        try:
            compile_engine()
        except (ImportError, OSError, subprocess.CalledProcessError) as reason:
            self.app.display_warning(f"the engine is not compiled, and will be slow: {_words(reason)}")
            return
        build_data.update(pure_python=False, infer_tag=True, artifacts=["pprof_merge/_compiled/**/*.so"])


def is_compiled() -> bool:
    """Return whether the engine of these sources is there, compiled."""
    named = _compiled()
    return (Path(named.folder()) / f"{named.SHARED}.so").exists()


def compile_engine() -> Path:
    """Compile the engine unless that is done; return the folder of its modules.

    Raises OSError, ImportError if mypy is missing, and CalledProcessError if it or the compiler fails.
    """
    named = _compiled()
    folder = Path(named.folder())
    if is_compiled():
        return folder
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        for name in (*named.MODULES, *_IMPORTED):
            copy = tree / "pprof_merge" / f"{name.replace('.', '/')}.py"
            copy.parent.mkdir(parents=True, exist_ok=True)
            (copy.parent / "__init__.py").touch()
            shutil.copyfile(named.source(name), copy)
        (tree / "pprof_merge" / "__init__.py").touch()
        # Folders differ from build to build, and are not to be in what is compiled; mypyc's is in the second.
        flags = f"{os.environ.get('CFLAGS', '')} {_FLAGS}"
        for folder_of_build in (tree, sys.prefix):
            flags += f" -ffile-prefix-map={folder_of_build}=."
        environment = {**os.environ, "CFLAGS": flags}
        subprocess.run(
            [sys.executable, __file__, "build_ext"],
            cwd=tree,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        # In a new folder that is then renamed, so that nobody imports half of a build.
        folder.parent.mkdir(exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder.parent))
        part.chmod(0o755)
        for built in tree.rglob("*.so"):
            relative = built.relative_to(tree).as_posix().split(".", maxsplit=1)[0]
            if not relative.startswith("build/"):
                shutil.copyfile(built, part / f"{relative.removeprefix('pprof_merge/').replace('/', '.')}.so")
        for old in folder.parent.iterdir():
            if old.suffix == folder.suffix and old != part:
                shutil.rmtree(old)
        part.rename(folder)
    return folder


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
            print("Compiling the merge engine, which takes half a minute; what starts meanwhile is slower")
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
