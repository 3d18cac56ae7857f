"""Turn samples of native programs into pprof profiles, with mappings, addresses, functions and lines.

A `Recording` holds what was sampled: `Stack`s of `Frame`s, each in a `Mapping` of a file. It comes from
`perf script` (`read_samples`, `recording_of`) or from raw addresses and `MemoryMaps`. `native_profile` turns
it into pprof, and `NativeProfileBuilder` is what that uses. `function_names` names the functions of stacks
for people. `Elf` reads build ids and segments; `run_tool` and `demangle` run LLVM's tools.
"""

from pgo_agent.native.elf import Elf, candidate_paths
from pgo_agent.native.external_tools import demangle, run_tool
from pgo_agent.native.memory_maps import MemoryMaps
from pgo_agent.native.perf_script import read_samples, recording_of
from pgo_agent.native.pprof import NativeProfileBuilder, function_names, native_profile
from pgo_agent.native.recording import Frame, Mapping, Recording, Stack

__all__ = [
    "Elf",
    "Frame",
    "Mapping",
    "MemoryMaps",
    "NativeProfileBuilder",
    "Recording",
    "Stack",
    "candidate_paths",
    "demangle",
    "function_names",
    "native_profile",
    "read_samples",
    "recording_of",
    "run_tool",
]
