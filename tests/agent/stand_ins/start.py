"""Run a program of the agent with the stand-in for bcc: `start.py TRACING CONSTANTS -I PROGRAM ARGUMENT...`.

TRACING is a folder that is taken for the kernel's with the tracepoints. CONSTANTS of the program are JSON.
"""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_, tracing, constants, _, program, *arguments = sys.argv
spec = spec_from_file_location("program", program)
assert spec
assert spec.loader
module: Any = module_from_spec(spec)
spec.loader.exec_module(module)
if hasattr(module, "_TRACING"):
    module._TRACING = Path(tracing)  # noqa: SLF001 - the kernel's own is root's
for name, number in json.loads(constants).items():
    getattr(module, name)  # it must be there
    setattr(module, name, number)
sys.argv = [program, *arguments]
module.main()
