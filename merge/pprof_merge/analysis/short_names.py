"""Short forms of mangled names, as `go tool pprof` shows them; those of Swift, too.

The library `demangle` reads them. It is written in Python, so that no name can end the process, and bounds
depth and output. Libraries around LLVM's demangler end with some names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import demangle
from demangle.core.spelling import Spelling, SpellingBuilder
from demangle.schemes.swift.options import SIMPLIFIED_OPTIONS

_LANGUAGES = ("itanium", "rust", "swift")
# A name of Rust before what LLVM and linkers add to it.
_BEFORE_SUFFIX_OF_RUST = re.compile(r"_{1,2}(?:R[^.]+|ZN.*?17h[0-9a-f]{16}E)(?=\.)", re.DOTALL)
# The library spells `std::string` so in the names of its constructors.
_OF_CHARS = re.compile(r"(std::basic_\w+)<char, std::char_traits<char>(?:, std::allocator<char>)?>")
# A form of more characters than this many times those of the name, and this many more, is of no program.
_MOST_TIMES, _MOST_MORE = 8, 64
_ANGLE = re.compile(r"->|[<>]")


class _Function(Spelling):
    """The name of a function, with its whole declaration beside it."""

    __slots__ = ("declaration",)

    def __init__(self, name: str, declaration: str) -> None:
        super().__init__(name)  # type: ignore[no-untyped-call]
        self.declaration = declaration


class _ShortNames(SpellingBuilder):
    """Spells names of C++ without parameters, arguments of templates, and what compilers add for clones."""

    __slots__ = ()

    def template(self, base: Spelling, arguments: Sequence[Spelling], angle_space: bool = True) -> Spelling:  # noqa: ARG002
        # Always another object: the parser knows by it what has arguments.
        return Spelling(base.left, base.right)

    def function(
        self,
        returns: Spelling | None,
        parameters: Sequence[Spelling],
        suffix: str = "",
        name: Spelling | None = None,
    ) -> Spelling:
        made: Spelling = super().function(returns, parameters, suffix, name)  # type: ignore[no-untyped-call]
        return made if name is None else _Function(str(name), str(made))

    def special(self, label: str, inner: Spelling) -> Spelling:
        return Spelling(label + (inner.declaration if isinstance(inner, _Function) else str(inner)))

    def decorated(self, inner: Spelling, decoration: str) -> Spelling:  # noqa: ARG002
        return inner


_STYLE: Any = replace(
    demangle.style("llvm", itanium={"gnu_closure_spelling": True}, swift=SIMPLIFIED_OPTIONS),
    spelling_builder=_ShortNames(),  # type: ignore[no-untyped-call]
)


def short_name(name: str) -> str:
    """Return the short form of a mangled name; the name itself if it can't be read, or is of no program."""
    of_rust = _BEFORE_SUFFIX_OF_RUST.match(name)
    text = of_rust[0] if of_rust else name
    found: str = demangle.demangle(text, language=_LANGUAGES, style=_STYLE)
    if found == text or len(found) > _MOST_TIMES * len(name) + _MOST_MORE:
        return name
    if "<" not in found:
        return found
    return _without_generics(found) if name.lstrip("_").startswith("R") else _OF_CHARS.sub(r"\1", found)


def _without_generics(name: str) -> str:
    """Return a name of Rust with `<>` for arguments of generics; `<T as Trait>` is none."""
    kept, last, opened, inside = "", 0, list[bool](), 0
    for found in _ANGLE.finditer(name):
        at = found.start()
        if found[0] == "<":
            is_generic = at > 0 and (name[at - 1].isalnum() or name[at - 1] in "_:}")
            if is_generic and not inside:
                kept += name[last : at + 1]
            opened.append(is_generic)
            inside += is_generic
        elif found[0] == ">" and opened:
            was_generic = opened.pop()
            inside -= was_generic
            if was_generic and not inside:
                last = at
    return name if inside else kept + name[last:]
