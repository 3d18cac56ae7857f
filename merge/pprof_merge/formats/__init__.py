"""Formats: one table of the formats that a profile can be written in, and a module for each.

A format's module is imported when the format is first used: `pprof`, `go` (with `reduction`), `folded`,
`speedscope`, `top` (the format json) and `llvm`. `__all__` has what others use: the table, the class of its
rows, BOLT's format, and which build has most of a profile's samples.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.lazy import lazy_names
from pprof_merge.profile import Profile

if TYPE_CHECKING:
    from pprof_merge.formats.llvm import most_sampled_build

__all__ = ["BOLT", "FORMATS", "Format", "most_sampled_build"]

__getattr__ = lazy_names(__name__, {"llvm": ["most_sampled_build"]})


def __dir__() -> list[str]:
    """Return the published names."""
    return __all__


class Format(NamedTuple):
    """A format of profiles.

    `function` names a module of this package and a function in it, `(Profile, Budget)` → pieces of bytes.
    `media_type` and `suffix` are those of a file in the format; a `binary` format isn't written to a
    terminal. `depth` is the number of locations that the format reads of each stack, from the leaf on; None
    is all. A view is for people, and has no frames that the profile drops.
    """

    name: str
    function: str
    media_type: str
    suffix: str
    binary: bool = False
    depth: int | None = None
    is_view: bool = False

    def write(self, profile: Profile, budget: Budget = UNBOUNDED) -> bytes:
        """Return the profile in this format: the same bytes for the same profile. Raises as `pieces` does."""
        return b"".join(self.pieces(profile, budget))

    def pieces(self, profile: Profile, budget: Budget = UNBOUNDED) -> Iterator[bytes]:
        """Return the profile in this format piece by piece, so that it needn't be in memory as a whole.

        Raises ProfileError if the profile lacks what the format needs, and OutputTooLarge, usually before the
        first piece, if the output is larger than the budget.
        """
        module, _, name = self.function.partition(":")
        function: Callable[[Profile, Budget], Iterator[bytes]] = getattr(
            import_module(f"{__name__}.{module}"), name
        )
        return function(profile, budget)


FORMATS = {
    known.name: known
    for known in (
        Format("pprof", "pprof:pprof", "application/octet-stream", ".pb.gz", binary=True),
        Format("go", "go:pieces", "application/octet-stream", ".pgo", binary=True, depth=2),
        Format("folded", "folded:folded", "text/plain; charset=utf-8", ".folded", is_view=True),
        Format("speedscope", "speedscope:speedscope", "application/json", ".speedscope.json", is_view=True),
        Format("json", "top:top", "application/json", ".top.json", is_view=True),
        Format("llvm", "llvm:pieces", "text/plain; charset=utf-8", ".prof", depth=2),
    )
}

# Nothing can be written in it without the program, so it isn't in the table: `pprof_merge.binary` writes it.
BOLT = Format("bolt", "", "text/plain; charset=utf-8", ".fdata", depth=2)
