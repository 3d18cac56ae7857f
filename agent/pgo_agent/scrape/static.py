"""Targets that a file lists, in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pgo_agent.errors import NotReadable, TargetInvalid
from pgo_agent.scrape.rounds import Rounds
from pgo_agent.scrape.target import TYPES, Target, Wanted, profile_below

_KINDS: Mapping[str, type] = {
    "url": str,
    "service": str,
    "labels": dict,
    "types": list,
    "seconds": int,
    "token_file": str,
    "ca_file": str,
}


class StaticTargets:
    """Targets that are known from the start."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets

    async def targets(self) -> Sequence[Target]:
        """See Source."""
        return self._targets

    async def follow(self, rounds: Rounds) -> None:
        """See Source."""
        rounds.replace("", self._targets)


def read_targets(path: Path, wanted: Wanted) -> list[Target]:
    """The targets of each `[[target]]`; files that it names are relative to it.

    Raises NotReadable, with the path, for a file that isn't as it is to be: half a fleet is no fleet.
    """
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (ValueError, OSError) as error:
        raise NotReadable(path, str(error)) from error
    tables = content.pop("target", [])
    if content or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise NotReadable(path, "it is to hold tables [[target]], and nothing else")
    try:
        targets = [_target(table, path.parent, wanted) for table in tables]
    except TargetInvalid as error:
        raise NotReadable(path, str(error)) from error
    if len({target.name for target in targets}) != len(targets):
        raise NotReadable(path, "two targets have one url")
    return targets


def _target(table: dict[str, Any], folder: Path, wanted: Wanted) -> Target:
    url = str(table.get("url", "a target without url"))
    _check(url, table)
    labels, types, seconds = _labels(url, table), table.get("types", wanted.types), table.get("seconds")
    length = wanted.seconds if seconds is None else seconds
    if unknown := [type_ for type_ in types if type_ not in TYPES]:
        raise TargetInvalid(url, f"no such type: {unknown[0]!r}")
    if length < 1 or not types:
        raise TargetInvalid(url, "seconds must be at least 1, and types at least one")
    return Target(
        name=url,
        service=table["service"],
        labels=labels,
        profiles=tuple(profile_below(url, type_, url, length) for type_ in types),
        seconds=length,
        token_file=folder / table["token_file"] if "token_file" in table else None,
        ca_file=folder / table["ca_file"] if "ca_file" in table else None,
    )


def _check(url: str, table: dict[str, Any]) -> None:
    for name, value in table.items():
        # A bool is an int to Python, and to nobody else.
        if name not in _KINDS or not isinstance(value, _KINDS[name]) or isinstance(value, bool):
            raise TargetInvalid(url, f"{name!r} is none of a target's settings, or not of its kind")
    if missing := {"url", "service"} - {*table}:
        raise TargetInvalid(url, f"it has no {min(missing)}")


def _labels(url: str, table: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    labels: dict[str, Any] = table.get("labels", {})
    if "" in labels or not all(isinstance(value, str) for value in labels.values()):
        raise TargetInvalid(url, "labels have names, and strings as values")
    return tuple(sorted(labels.items()))
