"""Names for addresses: `pprof-merge --symbolize`.

Profiles of programs without symbols have addresses. `naming` gives a profile the names in symbol tables;
begin there. `table` is a table of a program, of what is at each address, in a file. `sources` makes one, of
what `debug_information`, `go_lines` and `symbol_table` find; `elf` reads the program's segments, sections and
build id. `unnamed` says which programs of a profile have no names. `__all__` has what others use. The room
needs the extra `binary`.
"""

from typing import TYPE_CHECKING

from pprof_merge.lazy import lazy_names

if TYPE_CHECKING:
    from pprof_merge.symbols.naming import bare_builds, with_names
    from pprof_merge.symbols.sources import write_table
    from pprof_merge.symbols.table import SymbolTable
    from pprof_merge.symbols.unnamed import UnnamedBuild, unnamed_builds, unnamed_value

__all__ = [  # noqa: RUF022 - in the order in which a reader looks for them
    "write_table",
    "SymbolTable",
    "bare_builds",
    "with_names",
    "UnnamedBuild",
    "unnamed_builds",
    "unnamed_value",
]

__getattr__ = lazy_names(
    __name__,
    {
        "naming": ["bare_builds", "with_names"],
        "sources": ["write_table"],
        "table": ["SymbolTable"],
        "unnamed": ["UnnamedBuild", "unnamed_builds", "unnamed_value"],
    },
)


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
