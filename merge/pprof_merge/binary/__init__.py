"""A better sample profile for LLVM, with the program that was profiled: `pprof-merge --binary`.

A profile has the addresses that were sampled. The program says what they belong to: its basic blocks, and the
lines and discriminators that were never sampled. `elf` reads the program, `blocks` finds the basic blocks of
the sampled functions, `flow` makes their counts consistent, `places` reads lines and discriminators, and
`counting` puts them together; `Binary` and `llvm_with_binary` are what others use. The room needs the extra
`binary`; without the solver, of the extra `flow`, the counts of blocks are means.
"""

from pprof_merge.binary.counting import llvm_with_binary
from pprof_merge.binary.elf import Binary

__all__ = ["Binary", "llvm_with_binary"]
