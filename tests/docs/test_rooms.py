"""The packages' folders are rooms on floors: a room imports only what stands below it."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.merge.doors import DOORS
from tools.site.rooms import FLOORS, PICTURE, picture

ROOT = Path(__file__).parents[2]


def imports_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            found.add(str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def rooms(folder: str) -> list[tuple[Path, str]]:
    """Return each file of a package, and the room that it is in."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    return [(file, file.relative_to(ROOT / folder).with_suffix("").parts[0]) for file in files]


@pytest.mark.parametrize("folder", FLOORS)
def test_every_room_has_a_floor(folder: str) -> None:
    placed = ["__init__", *(room for floor in FLOORS[folder] for room in floor)]
    assert sorted(placed) == sorted({room for _, room in rooms(folder)})


@pytest.mark.parametrize("folder", FLOORS)
def test_a_room_imports_only_from_below(folder: str) -> None:
    # The package's own door stands above all: it hands their names on.
    floor_of = {room: floor for floor, on_it in enumerate(FLOORS[folder]) for room in on_it}
    floor_of["__init__"] = len(FLOORS[folder])
    package = Path(folder).name
    upwards = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file, room in rooms(folder)
        for module in imports_of(file)
        if module.startswith(f"{package}.")
        if module.split(".")[1] != room and floor_of[module.split(".")[1]] >= floor_of[room]
    ]
    assert not upwards


def test_every_room_says_what_is_inside() -> None:
    silent = [
        door.relative_to(ROOT)
        for folder in FLOORS
        for door in (ROOT / folder).rglob("__init__.py")
        if not ast.get_docstring(ast.parse(door.read_text()))
    ]
    assert not silent


@pytest.mark.parametrize("folder", ["collector/pgo_collector", "agent/pgo_agent"])
def test_others_use_what_the_merge_engine_publishes(folder: str) -> None:
    for file, _ in rooms(folder):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "pprof_merge":
                assert node.module in DOORS, f"{file}: imports from {node.module}"
                published = set(import_module(node.module).__all__)
                assert {alias.name for alias in node.names} <= published, file


def test_the_committed_picture_is_of_these_rooms() -> None:
    assert PICTURE.read_text() == picture(), "call `make docs`"


def test_no_protocol_uses_the_folder_of_another() -> None:
    routes = ROOT / "collector/pgo_collector/routes"
    protocols = {door.parent.name for door in routes.glob("*/__init__.py")} - {"push"}
    assert protocols
    crossed = [
        f"{file.relative_to(ROOT)} imports {module}"
        for file in routes.rglob("*.py")
        for module in imports_of(file)
        if module.startswith("pgo_collector.routes.") and file.parent != routes
        if module.split(".")[2] in protocols - {file.parent.name}
    ]
    assert not crossed, "what several protocols need stands in routes/push"
