"""Formats: what a profile can be written as, in one table. A format's code is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import NamedTuple

from pprof_merge.budget import UNBOUNDED, Budget
from pprof_merge.profile import Profile


class Format(NamedTuple):
    """A way to write a profile.

    `function` is a module of this package and a function in it, `Profile` and `Budget` → pieces of bytes.
    `media_type` and `suffix` are for those who hand out the bytes as a file; `binary` ones are nothing for a
    terminal.
    Of each stack it reads so many locations, from the leaf on, as its `depth` is; by default all.
    """

    name: str
    function: str
    media_type: str
    suffix: str
    binary: bool = False
    depth: int | None = None

    def write(self, profile: Profile, budget: Budget = UNBOUNDED) -> bytes:
        """Return the profile in this format, the same bytes for the same profile. Raises as `pieces` does."""
        return b"".join(self.pieces(profile, budget))

    def pieces(self, profile: Profile, budget: Budget = UNBOUNDED) -> Iterator[bytes]:
        """Return the profile in this format piece by piece, so that it needn't be in memory as a whole.

        Raises ProfileError where the profile lacks what the format can't do without, and OutputTooLarge, most
        often before the first piece, where it would be more than the budget.
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
        Format("folded", "folded:folded", "text/plain; charset=utf-8", ".folded"),
        Format("speedscope", "speedscope:speedscope", "application/json", ".speedscope.json"),
        Format("json", "top:top", "application/json", ".top.json"),
        Format("llvm", "llvm:pieces", "text/plain; charset=utf-8", ".prof", depth=1),
    )
}
