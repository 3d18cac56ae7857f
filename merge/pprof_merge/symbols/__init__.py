"""Names for addresses: `pprof-merge --symbolize`.

Profiles of programs without symbols have addresses. `table` makes a compact table of a program with symbols,
of what is at each address, and `naming` gives a profile the names in such tables; `unnamed` says which
programs of a profile have none. `__all__` has what others
use. The room needs the extra `binary`.
"""

from typing import TYPE_CHECKING

from pprof_merge.lazy import on_first_use

if TYPE_CHECKING:
    from pprof_merge.symbols.naming import bare_builds, with_names
    from pprof_merge.symbols.table import SymbolTable, write_table
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

__getattr__ = on_first_use(
    __name__,
    {
        "naming": ["bare_builds", "with_names"],
        "table": ["SymbolTable", "write_table"],
        "unnamed": ["UnnamedBuild", "unnamed_builds", "unnamed_value"],
    },
)


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
