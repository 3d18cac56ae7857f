"""Runs benchmarks of pyperformance for Valgrind, each in a process that is forked after the start.

Its arguments are a file, and of each benchmark a number, the script, and what this gets, as words with spaces
between. It writes the numbers of the processes to the file.

With another number, objects are at other addresses. By these, CPython finds methods in a table of a fixed
size, in which some are in the way of others: richards executes 675 to 764 million instructions by chance.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run each benchmark, and return whether one failed."""
    import_module("pyperf")  # as each of them does
    # A full collection would look at all of these objects. Whether the loops have one more is chance.
    gc.collect()
    gc.freeze()
    written, *benchmarks = sys.argv[1:]
    processes, failed = list[str](), 0
    for benchmark in benchmarks:
        number, script, *arguments = benchmark.split()
        process = os.fork()
        if process == 0:
            # So many places of each size of small objects are taken.
            _taken = [bytes(size) for size in range(16, 512, 16) for _ in range(int(number))]
            sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
            runpy.run_path(script, run_name="__main__")
            return 0
        processes.append(str(process))
        failed |= os.waitpid(process, 0)[1]
    Path(written).write_text("\n".join(processes))
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
