"""Groupings: what the frames of stacks are counted by, each a function from a frame to a name."""

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

# Go's compiler writes these for types: hashes, comparisons.
_OF_TYPE = re.compile(r"type:\.\w+\.")
# Up to the first "." or "::" after the last "/", where arguments, receivers and type parameters are cut off.
_PACKAGE = re.compile(r"<*+(?P<package>(?:.*/)?[^/.:<]+)(?:\.|::)")
_AFTER_PATH = re.compile(r"[\[({]")


def function_of(frame: Frame) -> str:
    """Its name."""
    return frame.name


def package_of(frame: Frame) -> str:
    """The package, crate or namespace in which the function is; what has none, as in C, is unknown.

    Go escapes the dots of a path's last element in names of symbols; here they are dots again.
    """
    if _is_binary(frame):
        return frame.name
    return _package_in(frame.name)


def file_of(frame: Frame) -> str:
    """The source file, its path as short as it can be; where there is none it is unknown."""
    if _is_binary(frame):
        return frame.name
    return _shortest(frame.file) if frame.file else UNKNOWN


# Functions share names and files, and hostile ones long ones. No more of them than this are kept.
@lru_cache(maxsize=256)
def _package_in(name: str) -> str:
    path = _AFTER_PATH.split(_OF_TYPE.sub("", name, count=1), maxsplit=1)[0]
    found = _PACKAGE.match(path)
    return UNKNOWN if found is None else unquote(found["package"])


@lru_cache(maxsize=256)
def _shortest(file: str) -> str:
    return normpath(file)


def _is_binary(frame: Frame) -> bool:
    """Whether all that is known of it is its binary."""
    return not frame.file and frame.name.startswith("[")


# By the names that they are asked for by.
GROUPINGS: Mapping[Grouping, Callable[[Frame], str]] = MappingProxyType(
    {"function": function_of, "package": package_of, "file": file_of}
)
