"""The compiled engine: modules with straight loops, which run some thirty times faster compiled by mypyc.

In a checkout, what is compiled is kept in a folder whose name has the hash of the sources, the version of
Python and the machine. So an edited source is never run by an old build: it is interpreted, with the same
results, until `make setup` has compiled it. A wheel has what was compiled of its own sources, and uses it
without reading them.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from typing import Any

PACKAGE = os.path.dirname(__file__)
# The modules that are compiled together.
MODULES = (
    "columns.vectors",
    "columns.tables",
    "columns.strings",
    "profile.columns",
    "codec.wire",
    "codec.reader",
    "codec.writer",
    "codec.otlp_tables",
    "codec.otlp",
    "merging.request_labels",
    "merging.numbering",
    "merging.assembly",
    "analysis.edges",
    "analysis.function_masks",
    "formats.reduction",
)
# The module that has the code of all others.
GROUP = "pprof_merge_engine"
SHARED = f"{GROUP}__mypyc"
# The folder that wheels have.
IN_WHEELS = "installed"
# If this variable of the environment is set, the engine is interpreted.
INTERPRETED = "PPROF_MERGE_INTERPRETED"


def source(module: str) -> str:
    """Return the path of a module's source."""
    return os.path.join(PACKAGE, *module.split(".")) + ".py"


def folder() -> str:
    """Return the folder in which the compiled modules of these sources are, or would be."""
    from zlib import adler32, crc32  # noqa: PLC0415 - a wheel needs no hash; hashlib would load OpenSSL

    first, second = 0, 1
    for module in MODULES:
        with open(source(module), "rb") as file:
            content = file.read()
        first, second = crc32(content, first), adler32(content, second)
    return os.path.join(PACKAGE, "_compiled", f"{first:08x}{second:08x}{EXTENSION_SUFFIXES[0]}")


class _Finder:
    """Finds the compiled modules in their folder."""

    def __init__(self, found: str) -> None:
        self._paths = {f"pprof_merge.{name}": os.path.join(found, f"{name}.so") for name in MODULES}
        self._paths[SHARED] = os.path.join(found, f"{SHARED}.so")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a compiled module, None for any other."""
        del path, target
        file = self._paths.get(name)
        if file is None:
            return None
        # As `spec_from_file_location` makes it, whose module takes longer to import than the engine's do.
        spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec


def use() -> bool:
    """Import the engine's modules compiled from now on, if they are; return whether they are."""
    if INTERPRETED in os.environ:
        return False
    found = os.path.join(PACKAGE, "_compiled", IN_WHEELS)
    if not os.path.exists(found):
        found = folder()
    if not os.path.exists(os.path.join(found, f"{SHARED}.so")):
        return False
    sys.meta_path.insert(0, _Finder(found))
    return True


# How the engine runs, in a word.
ENGINE = "compiled" if use() else "interpreted"
