"""The packages' folders are rooms on floors: a room imports only what stands below it."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from pgo_collector.routes.protocols import PROTOCOLS

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


def names_imported_by(file: Path) -> set[str]:
    """Return the modules that a file imports, and the dotted names that it imports from them."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    return imports_of(file) | {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}


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


ROOMS = [
    (ROOT / folder, door.parent) for folder in FLOORS for door in sorted((ROOT / folder).rglob("__init__.py"))
]
of_every_room = pytest.mark.parametrize(
    ("package", "room"), ROOMS, ids=[str(room.relative_to(ROOT)) for _, room in ROOMS]
)


def modules_of(room: Path) -> set[str]:
    """Return the names of a room's modules, and of the rooms inside it."""
    inside = {door.parent.name for door in room.glob("*/__init__.py")}
    return {name for name in inside | {file.stem for file in room.glob("*.py")} if not name.startswith("_")}


def names_in_door(room: Path) -> set[str]:
    """Return the names in backticks in a door's docstring, without the slash at the end of a folder."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    return {name.rstrip("/") for name in re.findall(r"`([^`\n]+)`", text)}


@cache
def defined_in(file: Path) -> frozenset[str]:
    """Return what a module defines, also in its classes: functions, classes and methods."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))


def exports_of(room: Path) -> set[str]:
    """Return the names in `__all__` of a door; none if it has no such list."""
    for node in ast.parse((room / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {str(name) for name in ast.literal_eval(node.value)}
    return set()


@of_every_room
def test_a_door_names_every_module_of_its_room(package: Path, room: Path) -> None:
    assert package in {room, *room.parents}
    named = {name.split(".")[0] for name in names_in_door(room)}
    assert sorted(modules_of(room) - named) == []


@of_every_room
def test_a_door_names_no_module_that_is_not_there(package: Path, room: Path) -> None:
    known = modules_of(room) | modules_of(package) | {package.name} | exports_of(package)
    known = known.union(*map(defined_in, room.glob("*.py")))
    missing = []
    for name in names_in_door(room):
        if re.fullmatch(r"[a-z][a-z0-9_]*(\.\w+)?", name):
            first, _, rest = name.partition(".")
            module = room / f"{first}.py"
            if first not in known or (rest and module.exists() and rest not in defined_in(module)):
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize("folder", ["collector/pgo_collector", "agent/pgo_agent"])
def test_what_a_room_exports_is_imported_from_its_door(folder: str) -> None:
    past = []
    for room, names in [(room, exports_of(room)) for package, room in ROOMS if package == ROOT / folder]:
        module = ".".join(room.relative_to((ROOT / folder).parent).parts)
        for file, _ in rooms(folder) if names else ():
            if room not in file.parents:
                past += [
                    f"{file.relative_to(ROOT)}: {alias.name} is exported by {module}"
                    for node in ast.walk(ast.parse(file.read_text()))
                    if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{module}.")
                    for alias in node.names
                    if alias.name in names
                ]
    assert past == []


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


def test_no_protocol_uses_what_is_of_another() -> None:
    routes, module = ROOT / "collector/pgo_collector/routes", "pgo_collector.routes"
    protocols = {protocol.name for protocol in PROTOCOLS}
    crossed = [
        f"{file.relative_to(ROOT)} imports {imported}"
        for file, own in rooms("collector/pgo_collector/routes")
        if file != routes / "protocols.py"
        for imported in names_imported_by(file)
        if imported.startswith(f"{module}.") and imported.split(".")[2] in protocols - {own}
    ]
    assert not crossed, "what several protocols need stands in routes/push"


def test_each_protocol_has_a_folder_or_a_module_of_its_name() -> None:
    routes = ROOT / "collector/pgo_collector/routes"
    folders = {door.parent.name for door in routes.glob("*/__init__.py")} - {"push"}
    names = {protocol.name for protocol in PROTOCOLS}
    assert folders <= names
    assert {f"{name}.py" for name in names - folders} <= {file.name for file in routes.glob("*.py")}
