"""A better sample profile for LLVM, or one for BOLT, with the program: `pprof-merge --binary`.

A profile has the addresses that were sampled. The program says what they belong to: its basic blocks, and the
lines and discriminators that were never sampled. `elf` reads the program, `blocks` finds the basic blocks of
the sampled functions, `flow` makes their counts consistent, `places` reads lines and discriminators, and
`counting` puts them together. Branch records leave nothing to be guessed: `branches` counts them. `bolt`
writes counts of branches for BOLT, which lays the program out again. `__all__` has what others use. The room
needs the extra `binary`; without the solver, of the extra `flow`, there is no profile for BOLT, and the
counts of blocks for LLVM are means.
"""

from typing import TYPE_CHECKING

from pprof_merge.errors import BinaryInvalid
from pprof_merge.lazy import lazy_names
from pprof_merge.limits import BinaryLimits

if TYPE_CHECKING:
    from pprof_merge.binary.bolt import bolt_with_binary
    from pprof_merge.binary.counting import kept_with_binary, llvm_with_binary
    from pprof_merge.binary.elf import Binary

__all__ = [  # noqa: RUF022 - in the order in which a reader looks for them
    "llvm_with_binary",
    "kept_with_binary",
    "bolt_with_binary",
    "Binary",
    "BinaryLimits",
    "BinaryInvalid",
]

__getattr__ = lazy_names(
    __name__,
    {
        "bolt": ["bolt_with_binary"],
        "counting": ["kept_with_binary", "llvm_with_binary"],
        "elf": ["Binary"],
    },
)


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__
