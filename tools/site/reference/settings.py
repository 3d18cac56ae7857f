"""The page of all settings of the collector."""

from __future__ import annotations

from pathlib import Path

from pgo_collector.settings import PREFIX, Settings

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Configure `pgo-collector` with environment variables; there is no other way.
[Operations](../operations.md) explains how settings work together. The settings of the agent are
arguments of its [constructors](../agent.md#settings) and [commands](commands.md)."""


def settings_page() -> str:
    """Return the page."""
    rows = (
        [
            code(PREFIX + name.upper()),
            "computed" if field.default_factory else code(_shown(field.default)),
            field.description or "",
        ]
        for name, field in Settings.model_fields.items()
    )
    return page("Settings", _INTRODUCTION, table(["variable", "default", "meaning"], rows))


def _shown(default: object) -> object:
    if default is None:
        return ""
    is_relative = isinstance(default, Path) and not default.is_absolute()
    return f"./{default}" if is_relative else default
