from __future__ import annotations

import ast
import inspect
import pickle
import types
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pprof_merge
import pytest
from pprof_merge import (
    IncompatibleProfiles,
    LimitExceeded,
    Limits,
    MalformedProfile,
    OutputTooLarge,
    ProfileError,
    UnfitForFormat,
    UnfitForWeight,
)

from tests.merge.doors import DOORS

MODULES = {door: import_module(door) for door in DOORS}
PACKAGES = [door for door, module in MODULES.items() if hasattr(module, "__path__")]
LAZY = [door for door in PACKAGES if hasattr(MODULES[door], "__getattr__")]
# The types of NumPy's arrays are `Any` when a program runs.
EXPORTED = {
    f"{door}.{name}": getattr(module, name)  # some are imported on first use
    for door, module in MODULES.items()
    if door != "pprof_merge.arrays"
    for name in module.__all__
}
DESCRIBED = [
    name for name, member in EXPORTED.items() if inspect.isclass(member) or inspect.isfunction(member)
]


# The table of formats and its class are in the door itself.
@pytest.mark.parametrize("door", sorted({*PACKAGES} - {"pprof_merge.formats"}))
def test_all_is_what_a_package_exports(door: str) -> None:
    module = MODULES[door]
    exported = {
        name
        for name, member in vars(module).items()
        if not name.startswith("_") and not isinstance(member, types.ModuleType)
    }
    assert sorted(exported - {"TYPE_CHECKING", "lazy_names"}) == sorted(module.__all__)


@pytest.mark.parametrize("door", DOORS)
def test_every_published_name_is_there(door: str) -> None:
    module = MODULES[door]
    assert {*module.__all__} <= {*dir(module)}
    assert len({*module.__all__}) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("door", PACKAGES)
def test_no_module_has_the_name_of_what_its_package_publishes(door: str) -> None:
    modules = {found.name for found in iter_modules(MODULES[door].__path__)}
    assert not modules & {*MODULES[door].__all__}


def test_the_package_publishes_what_its_rooms_do() -> None:
    for door in ("pprof_merge.codec", "pprof_merge.merging", "pprof_merge.formats"):
        for name in {*MODULES[door].__all__} & {*pprof_merge.__all__}:
            assert getattr(MODULES[door], name) is getattr(pprof_merge, name)


def test_a_few_names_are_enough_for_most() -> None:
    assert len(pprof_merge.__all__) <= 25


@pytest.mark.parametrize("door", LAZY)
def test_an_unknown_name_is_an_attribute_error(door: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{door}' has no attribute 'unknown'"):
        MODULES[door].unknown  # noqa: B018


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_function_and_class_has_a_docstring(name: str) -> None:
    member = EXPORTED[name]
    written = member.__doc__ or docstring_in_source(member)
    assert written
    assert not written.startswith(f"{member.__name__}("), "only the docstring that dataclass wrote"


def docstring_in_source(member: type) -> str | None:
    """Return the docstring of a class, which mypyc leaves out of those that it compiles."""
    source = Path(pprof_merge.__file__).parents[1] / f"{member.__module__.replace('.', '/')}.py"
    (found,) = (
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == member.__name__
    )
    return ast.get_docstring(found)


@pytest.mark.parametrize(
    "error",
    [
        ProfileError("there is none"),
        MalformedProfile("a varint is truncated", "sample 17"),
        LimitExceeded("inflated_bytes", 1 << 20, "gzip"),
        IncompatibleProfiles("their types differ"),
        UnfitForFormat("it has no samples"),
        UnfitForWeight("it has no duration"),
        OutputTooLarge(1 << 40, 1 << 28, "ask for less"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_pass_between_processes(error: ProfileError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_an_error_says_where_and_what() -> None:
    assert str(MalformedProfile("a varint is truncated", "sample 17")) == "sample 17: a varint is truncated"
    assert str(LimitExceeded("inflated_bytes", 1 << 20)) == "more than 1,048,576 inflated bytes"


@pytest.mark.parametrize(
    "error",
    [
        MalformedProfile,
        LimitExceeded,
        IncompatibleProfiles,
        UnfitForFormat,
        UnfitForWeight,
        OutputTooLarge,
    ],
)
def test_there_is_one_tree_of_errors(error: type[ProfileError]) -> None:
    assert issubclass(error, ProfileError)
    assert issubclass(error, ValueError)


def test_limits_none_has_no_bound_that_a_file_can_reach() -> None:
    unbounded = Limits.none()
    assert all(bound > 1 << 60 for bound in unbounded)
