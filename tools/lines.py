# noqa: INP001 - beside other commands
"""Measure which lines of the packages a command runs: `.venv/bin/python -m tools.lines make test`.

Each Python of `.venv` that starts meanwhile marks the statements that it runs, in a file that they all map, a
byte a line. So lines of forked and killed processes count, too: coverage.py saves what it has seen when a
process ends, and workers are killed. The compiled engine marks nothing; with `PPROF_MERGE_INTERPRETED=1` in
the environment, its sources run.
"""

from __future__ import annotations

import ast
import builtins
import json
import mmap
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

# pprof_proto has generated modules, but for one.
PACKAGES = ("merge/pprof_merge", "collector/pgo_collector", "agent/pgo_agent")
FOLDER = Path(".dev/lines")
HOOK = Path(sysconfig.get_path("purelib"), "lines_hook.py")


def begin(folder: Path) -> None:
    """Mark what this process imports from now on; each Python of `.venv` calls it when it starts."""
    sys.pycache_prefix = str(folder / "pycache")
    offsets = json.loads((folder / "offsets").read_bytes())
    with (folder / "marks").open("r+b") as file:
        builtins.__dict__["__marks__"] = mmap.mmap(file.fileno(), 0)
    compile_source: Any = SourceFileLoader.source_to_code

    def compile_marked(loader: SourceFileLoader, data: Any, path: Any, **options: Any) -> Any:
        offset = offsets.get(str(path))
        if offset is not None:
            data = ast.parse(data)
            for statements, i in reversed([*_places(data)]):
                line = statements[i].lineno
                (mark,) = ast.parse(f"__marks__[{offset + line}] = 1").body
                statements.insert(i, ast.increment_lineno(mark, line - 1))
        return compile_source(loader, data, path, **options)

    setattr(SourceFileLoader, "source_to_code", compile_marked)  # noqa: B010 - mypy refuses an assignment


def _places(tree: ast.Module) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield the list and index of each statement but docstrings, `...` and some imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, name, None), list):
                for i, statement in enumerate(statements):
                    is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
                    if not is_future and not (
                        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                    ):
                        yield statements, i


def lines(path: Path) -> set[int]:
    """Return the numbers of the lines of a file on which a statement begins."""
    return {statements[i].lineno for statements, i in _places(ast.parse(path.read_bytes()))}


def main() -> int:
    """Run the command, print the share of lines that ran, and write the others to `.dev/lines/missed`."""
    offsets, size = {}, 0
    for path in (path for package in PACKAGES for path in sorted(Path(package).resolve().rglob("*.py"))):
        if not path.name.endswith("_pb2.py"):
            offsets[str(path)] = size
            size += path.read_bytes().count(b"\n") + 2
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "offsets").write_text(json.dumps(offsets))
    (FOLDER / "marks").write_bytes(bytes(size))
    shutil.copy(__file__, HOOK)
    start = HOOK.with_suffix(".pth")
    start.write_text(f"import lines_hook; lines_hook.begin(lines_hook.Path({str(FOLDER.resolve())!r}))\n")
    try:
        code = subprocess.run(sys.argv[1:], check=False).returncode
    finally:
        start.unlink()
        HOOK.unlink()
    marks, missed, total = (FOLDER / "marks").read_bytes(), Counter[str](), Counter[str]()
    with (FOLDER / "missed").open("w") as file:
        for name, offset in offsets.items():
            package = next(package for package in PACKAGES if f"/{package}/" in name)
            numbers = lines(Path(name))
            left = sorted(number for number in numbers if not marks[offset + number])
            file.writelines(f"{name}:{number}\n" for number in left)
            total[package] += len(numbers)
            missed[package] += len(left)
    total["all"], missed["all"] = total.total(), missed.total()
    for package, count in total.items():
        print(f"{package:24}{1 - missed[package] / count:8.2%} of {count:6,} lines")
    return code


if __name__ == "__main__":
    sys.exit(main())
