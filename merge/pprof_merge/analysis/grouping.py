"""Groupings: functions from a frame to the name that tables, timelines and queries count it by."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from posixpath import normpath
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote

from pprof_merge.analysis.stacks import Frame

Grouping = Literal["function", "package", "file"]

UNKNOWN = "<unknown>"

# Functions that Go's compiler generates for types, to hash and to compare them.
_OF_TYPE = re.compile(r"type:\.\w+\.")
# A package ends at the first "." or "::" after the last "/"; arguments, receivers and type parameters are cut
# off before.
_PACKAGE = re.compile(r"<*+(?P<package>(?:.*/)?[^/.:<]+)(?:\.|::)")
_AFTER_PATH = re.compile(r"[\[({]")


def function_of(frame: Frame) -> str:
    """Return the function's name."""
    return frame.name


def package_of(frame: Frame) -> str:
    """Return the package, crate or namespace of the function; `<unknown>` if it has none, as in C.

    Go escapes dots in the last element of a package path in symbol names; they are unescaped here.
    """
    if _is_binary(frame):
        return frame.name
    return _package_in(frame.name)


def file_of(frame: Frame) -> str:
    """Return the path of the source file, normalized; `<unknown>` if there is none."""
    if _is_binary(frame):
        return frame.name
    return _shortest(frame.file) if frame.file else UNKNOWN


# Many functions share a name or a file. The caches are small since hostile profiles have long names.
@lru_cache(maxsize=256)
def _package_in(name: str) -> str:
    path = _AFTER_PATH.split(_OF_TYPE.sub("", name, count=1), maxsplit=1)[0]
    found = _PACKAGE.match(path)
    return UNKNOWN if found is None else unquote(found["package"])


@lru_cache(maxsize=256)
def _shortest(file: str) -> str:
    return normpath(file)


def _is_binary(frame: Frame) -> bool:
    """Return whether only the binary of the frame is known."""
    return not frame.file and frame.name.startswith("[")


# The groupings by the names that requests use.
GROUPINGS: Mapping[Grouping, Callable[[Frame], str]] = MappingProxyType(
    {"function": function_of, "package": package_of, "file": file_of}
)
