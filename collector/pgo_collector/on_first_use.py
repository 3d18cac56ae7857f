"""Modules that are imported when something of them is used: a start without them is quicker, and smaller.

`http.routing.OnFirstRequest` does the same for a part of the application.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class OnFirstUse:
    """Stands for a module. Give type checkers the module itself."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        """Return what the module has under a name."""
        return getattr(import_module(self._module), name)
