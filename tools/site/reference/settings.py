"""The page of all settings of the collector."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgo_collector.settings import BASIC, PREFIX, Settings

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Configure `pgo-collector` with environment variables, or with a file that one of them names,
`PGOF_SETTINGS_FILE`. [Operations](../operations.md) explains how settings work together. The settings of
the agent are arguments of its [constructors](../agent.md#settings) and [commands](commands.md)."""
_ADVANCED = """\
Leave these as they are unless a message names one, or a page says when to change it."""


def settings_page() -> str:
    """Return the page."""
    advanced = [name for name in Settings.model_fields if name not in BASIC]
    return page(
        "Settings",
        _INTRODUCTION,
        "## Settings that matter",
        _table(BASIC),
        "## Advanced settings",
        _ADVANCED,
        _table(advanced),
    )


def _table(names: Iterable[str]) -> str:
    rows = (
        [
            code(PREFIX + name.upper()),
            "computed" if field.default_factory else code(_shown(field.default)),
            field.description or "",
        ]
        for name in names
        for field in (Settings.model_fields[name],)
    )
    return table(["variable", "default", "meaning"], rows)


def _shown(default: object) -> object:
    if default is None:
        return ""
    is_relative = isinstance(default, Path) and not default.is_absolute()
    return f"./{default}" if is_relative else default
