"""Test what importing the client costs a program."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

before = memory()
import pgo_agent
print(json.dumps({"memory": memory() - before, "modules": list(sys.modules)}))
"""


def test_the_import_is_small() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    cost = json.loads(done.stdout)
    assert cost["memory"] < 30_000_000
    # Each takes a tenth of a second or a tenth of the memory, and not every program needs it.
    late = {"google.protobuf", "importlib.metadata", "tqdm", "anyio"}
    assert not late & {*cost["modules"]}
