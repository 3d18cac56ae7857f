"""The page of all settings of the collector."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pgo_collector.settings import BASIC, PREFIX, SHOWN, Settings, followers_of

from tools.site.reference.markdown import code, page, table

_INTRODUCTION = """\
Configure `pgo-collector` with environment variables, or with a file that one of them names,
`PGOF_SETTINGS_FILE`. [Operations](../operations.md) explains how settings work together. The settings of
the agent are arguments of its [constructors](../agent.md#settings) and [commands](commands.md)."""
_FAMILIES = """\
Some settings set others, too: where a row says so, raise that one setting, and the others grow in proportion.
The numbers in parentheses are what they are up to its default. Each of them has a variable of its own, for
the case that you need one alone."""
_ADVANCED = """\
Leave these as they are unless a message names one, or a page says when to change it."""


def settings_page() -> str:
    """Return the page."""
    advanced = [name for name in SHOWN if name not in BASIC]
    return page(
        "Settings",
        _INTRODUCTION,
        _FAMILIES,
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
            _meaning(name),
        ]
        for name in names
        for field in (Settings.fields[name],)
    )
    return table(["variable", "default", "meaning"], rows)


def _meaning(name: str) -> str:
    """Return what a setting does, and what follows it."""
    followers = "; ".join(followers_of(name))
    return f"{Settings.fields[name].description}" + (f" Sets too: {followers}." if followers else "")


def _shown(default: object) -> object:
    if default is None:
        return ""
    is_relative = isinstance(default, Path) and not default.is_absolute()
    return f"./{default}" if is_relative else default
