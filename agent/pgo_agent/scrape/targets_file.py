"""Read scrape targets from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgo_agent.errors import NotReadable, TargetInvalid
from pgo_agent.scrape.schedule import ScrapeSchedule
from pgo_agent.scrape.target import TYPES, Target, TargetDefaults, profile_under

_SETTINGS: Mapping[str, type] = {
    "url": str,
    "service": str,
    "labels": dict,
    "types": list,
    "seconds": int,
    "token_file": str,
    "ca_file": str,
}
_KIND_NAMES = {str: "a string", dict: "a table", list: "an array", int: "a whole number"}


class FileTargets:
    """A source of targets that never change: the ones that a file lists."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self.unreadable = False

    async def targets(self) -> Sequence[Target]:
        """Return the targets."""
        return self._targets

    async def follow(self, schedule: ScrapeSchedule) -> None:
        """Give the targets to the schedule once."""
        schedule.replace("", self._targets)


def read_targets(path: Path, defaults: TargetDefaults) -> list[Target]:
    """Return the target of each `[[target]]` table. Paths in the file are relative to its folder.

    Raises NotReadable, with the path, if any table is wrong: no target is returned then.
    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (ValueError, OSError) as error:
        raise NotReadable(path, str(error)) from error
    tables = content.pop("target", [])
    if content or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise NotReadable(path, "expected only [[target]] tables")
    try:
        targets = [_target(table, path.parent, defaults) for table in tables]
    except TargetInvalid as error:
        raise NotReadable(path, str(error)) from error
    if len({target.name for target in targets}) != len(targets):
        raise NotReadable(path, "two targets have the same url")
    return targets


def _target(table: dict[str, Any], folder: Path, defaults: TargetDefaults) -> Target:
    url = str(table.get("url", "a target without url"))
    _check(url, table)
    labels, types, seconds = _labels(url, table), table.get("types", defaults.types), table.get("seconds")
    length = defaults.seconds if seconds is None else seconds
    if unknown := [type_ for type_ in types if type_ not in TYPES]:
        raise TargetInvalid(url, f"unknown type {unknown[0]!r}; use {', '.join(TYPES)}")
    if length < 1 or not types:
        raise TargetInvalid(url, "seconds must be at least 1, and types at least one")
    return Target(
        name=url,
        service=table["service"],
        labels=labels,
        profiles=tuple(profile_under(url, type_, url, length) for type_ in types),
        seconds=length,
        token_file=folder / table["token_file"] if "token_file" in table else None,
        ca_file=folder / table["ca_file"] if "ca_file" in table else None,
    )


def _check(url: str, table: dict[str, Any]) -> None:
    for name, value in table.items():
        if name not in _SETTINGS:
            raise TargetInvalid(url, f"unknown setting {name!r}; use {', '.join(_SETTINGS)}")
        # In Python a bool is an int; in TOML it isn't.
        if not isinstance(value, _SETTINGS[name]) or isinstance(value, bool):
            raise TargetInvalid(url, f"{name!r} must be {_KIND_NAMES[_SETTINGS[name]]}")
    if missing := {"url", "service"} - {*table}:
        raise TargetInvalid(url, f"it has no {min(missing)}")


def _labels(url: str, table: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    labels: dict[str, Any] = table.get("labels", {})
    if "" in labels or not all(isinstance(value, str) for value in labels.values()):
        raise TargetInvalid(url, "labels must have names, and strings as values")
    return tuple(sorted(labels.items()))
