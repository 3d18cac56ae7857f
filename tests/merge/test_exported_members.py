from __future__ import annotations

import inspect
import pickle
import types

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


def test_all_is_what_the_package_exports() -> None:
    for name in pprof_merge.__all__:
        getattr(pprof_merge, name)  # some are imported on first use
    exported = {
        name
        for name, member in vars(pprof_merge).items()
        if not name.startswith("_") and not isinstance(member, types.ModuleType)
    }
    not_ours = {"TYPE_CHECKING", "Any", "import_module"}
    assert sorted(exported - not_ours) == sorted(pprof_merge.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        pprof_merge.unknown  # noqa: B018


EXPORTED = {name: getattr(pprof_merge, name) for name in pprof_merge.__all__}
DESCRIBED = [
    name for name, member in EXPORTED.items() if inspect.isclass(member) or inspect.isfunction(member)
]


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_function_and_class_has_a_docstring(name: str) -> None:
    member = EXPORTED[name]
    assert member.__doc__
    assert not member.__doc__.startswith(f"{name}("), "only the docstring that dataclass wrote"


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
