"""Turn samples of native programs into pprof profiles, with mappings, addresses, functions and lines.

A `Recording` (`recording`) holds what was sampled: `Stack`s of `Frame`s, each in a `Mapping` of a file. It
comes from `perf script` (`perf_script`, and `branches` for branch records), or from raw addresses and
`MemoryMaps` (`memory_maps`). The code of JIT compilers is named by their own files (`perf_maps`).
`native_profile` turns it into pprof with a `NativeProfileBuilder` (`pprof`), and `function_names` names the
functions of stacks for people. `Elf` (`elf`) reads build ids and segments, `Symbols` (`go_symbols`) the
functions of a Go program. An `Unwinder` (`unwinding`) follows stacks by call frame information, which
`unwind_rules` asks of libdw in a process of its own (`cfi_program`). `find_interpreter`
(`interpreters`) finds CPython in a process; `PythonCodes` reads what functions it runs, and `mixed` puts them
into a native stack (`python_stacks`). `run_tool` and `demangle` run other programs (`external_tools`).
"""

from pgo_agent.native.branches import read_branches
from pgo_agent.native.elf import Elf, candidate_paths, has_symbol_table
from pgo_agent.native.external_tools import demangle, run_tool
from pgo_agent.native.go_symbols import Symbols
from pgo_agent.native.interpreters import FrameLayout, Interpreter, find_interpreter
from pgo_agent.native.memory_maps import MemoryMaps
from pgo_agent.native.perf_processes import PerfProcesses
from pgo_agent.native.perf_script import read_samples, recording_of, with_stacks_told
from pgo_agent.native.pprof import NativeProfileBuilder, function_names, native_profile
from pgo_agent.native.python_stacks import PythonCodes, PythonFrame, Segment, mixed
from pgo_agent.native.recording import (
    BY_CALL_FRAMES,
    BY_FRAME_POINTERS,
    Frame,
    Mapping,
    Recording,
    Stack,
    stacks_comment,
)
from pgo_agent.native.unwinding import Unwinder

__all__ = [
    "BY_CALL_FRAMES",
    "BY_FRAME_POINTERS",
    "Elf",
    "Frame",
    "FrameLayout",
    "Interpreter",
    "Mapping",
    "MemoryMaps",
    "NativeProfileBuilder",
    "PerfProcesses",
    "PythonCodes",
    "PythonFrame",
    "Recording",
    "Segment",
    "Stack",
    "Symbols",
    "Unwinder",
    "candidate_paths",
    "demangle",
    "find_interpreter",
    "function_names",
    "has_symbol_table",
    "mixed",
    "native_profile",
    "read_branches",
    "read_samples",
    "recording_of",
    "run_tool",
    "stacks_comment",
    "with_stacks_told",
]
