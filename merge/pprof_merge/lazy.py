"""Names that a package publishes and imports on first use, since their modules import NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, published: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the package's `__getattr__`, which imports these names, given by module, when they are used."""
    module_of = {name: module for module, names in published.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name
