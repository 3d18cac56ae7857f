"""The names that views show for functions: demangled, as `go tool pprof` shows them by default.

Parameters, return types and the arguments of templates are left out, so that all instances of a template are
one function (google/pprof, `internal/symbolizer`). Merges and what compilers read keep the names that linkers
know. Names come with profiles, so they may be hostile: one that is too long, and those for which there is no
time left, are shown as they were sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from time import thread_time

import numpy as np

from pprof_merge.profile import Profile

# Bytes of one mangled name: the longest of LLVM's and of Rust's compiler are of 2 to 3 KB.
LONGEST_NAME = 4096
# CPU time, in seconds, that the names of one profile may take that aren't cached: some 70,000 names of LLVM.
_MOST_SECONDS = 3.0
# Bytes that the short forms that were read last may take; some 100,000 names of C++.
_MOST_BYTES = 32 << 20
# Memory, in bytes, of an entry besides the characters.
_ENTRY_BYTES = 200

# How names of C++, Rust and Swift begin; macOS has one more `_`.
_MANGLED = re.compile(rb"_{1,2}Z|_{1,2}R[A-Z]|_?\$[sS]|_T0")


def with_demangled_names(profile: Profile) -> Profile:
    """Return a profile with the names that views show; one that has them is returned as it is.

    Functions keep the names that they had as their names in the system.
    """
    functions, strings = profile.functions, profile.strings
    keys = functions.name.astype(np.int64) * len(strings) + functions.system_name
    distinct, of_function = np.unique(keys, return_inverse=True)
    rows, system_rows = np.divmod(distinct, len(strings))
    was = np.where(system_rows, system_rows, rows)
    texts, row_of = list(strings), dict[bytes, int]()
    for number, name in _shown([strings[row] for row in rows], [strings[row] for row in system_rows]):
        rows[number] = row_of.setdefault(name, len(texts))
        if rows[number] == len(texts):
            texts.append(name)
    if not row_of:
        return profile
    system_rows = np.where(rows < len(strings), system_rows, was)
    shown = replace(functions, name=rows[of_function], system_name=system_rows[of_function])
    return profile.replace(functions=shown, strings=texts)


def _shown(names: Sequence[bytes], system_names: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the names that are shown in place of others, each with the index of the other one."""
    mangled: list[tuple[int, bytes, int]] = []
    for index, (name, system_name) in enumerate(zip(names, system_names, strict=True)):
        if _MANGLED.match(name):
            mangled.append((len(name), name, index))
        elif (cut := shown_function(name, system_name)) != name:
            yield index, cut
    end = thread_time() + _MOST_SECONDS
    for _, name, index in sorted(mangled):  # the shortest first: hostile ones are long
        if thread_time() > end:
            return
        if (found := shown_function(name, system_names[index])) != name:
            yield index, found


def shown_function(name: bytes, system_name: bytes) -> bytes:
    """Return the name that views show for a function with this name, and this one in the system or none.

    A function with a name besides that in the system has been named by its sender.
    """
    if system_name and name != system_name:
        return name
    if _MANGLED.match(name):
        return demangled(name)
    if system_name and b"::" in name and not name.startswith(b"<"):
        return _without(b"<", b">", _without(b"(", b")", name)) or name
    return name


def shown_name(name: str) -> str:
    """Return the name that views show for a function that is given by any of its names."""
    if not name.isascii() or not _MANGLED.match(name.encode()):
        return name
    return demangled(name.encode()).decode()


def name_finder(text: str, system_names: Iterable[tuple[str, str]]) -> Callable[[str], bool]:
    """Return whether a shown name contains a text, in any case, or a name in the system that is shown so.

    The text may be a whole mangled name. `system_names` are those of shown names, one a line.
    """
    sought, as_sent = shown_name(text).casefold(), text.casefold()
    found = {name for name, names in system_names if as_sent in names.casefold()}
    return lambda name: sought in name.casefold() or name in found


def demangled(name: bytes) -> bytes:
    """Return the short form of a mangled name; one that is too long, or that isn't one, as it is."""
    return name if len(name) > LONGEST_NAME or not name.isascii() else _KNOWN[name]


class ShortForms(dict[bytes, bytes]):
    """Short forms by name, each read when it is first used; all are forgotten when they are too many."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __missing__(self, name: bytes) -> bytes:
        # Loaded for the first mangled name: few services have any.
        from pprof_merge.analysis.short_names import short_name  # noqa: PLC0415

        short = short_name(name.decode()).encode()
        self.nbytes += len(name) + len(short) + _ENTRY_BYTES
        if self.nbytes > _MOST_BYTES:
            self.clear()
            self.nbytes = 0
        self[name] = short
        return short


_KNOWN = ShortForms()


def _without(begin: bytes, end: bytes, name: bytes) -> bytes:
    """Return a name without what is in these brackets, as pprof cuts a name of C++ that is demangled.

    It is the whole name if a bracket is closed that isn't open.
    """
    kept, depth, last = bytearray(), 0, 0
    for found in re.finditer(rb"[" + begin + end + rb"]", name):
        if found[0] == begin:
            if depth == 0:
                kept += name[last : found.start()]
                last = found.start()
            depth += 1
        else:
            depth -= 1
            if depth < 0:
                return bytes(kept) + name[last:]
            if depth == 0:
                last = found.end()
    return bytes(kept) + name[last:]
