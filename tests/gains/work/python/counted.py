"""Runs benchmarks of pyperformance for Valgrind, each in a process that is forked after the start.

Its arguments are a file, and of each benchmark the script and what this gets, as words with spaces between.
It writes the numbers of the processes to the file.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run each benchmark, and return whether one failed."""
    import_module("pyperf")  # as each of them does
    written, *benchmarks = sys.argv[1:]
    processes, failed = list[str](), 0
    for benchmark in benchmarks:
        script, *arguments = benchmark.split()
        process = os.fork()
        if process == 0:
            sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
            runpy.run_path(script, run_name="__main__")
            return 0
        processes.append(str(process))
        failed |= os.waitpid(process, 0)[1]
    Path(written).write_text("\n".join(processes))
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
