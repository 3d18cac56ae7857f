"""Basic blocks of a function and the ways between them, from its machine code as capstone reads it."""

from __future__ import annotations

from dataclasses import dataclass

import capstone
from capstone import x86

from pprof_merge.binary.elf import Function

EXIT = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from a block to the next one, or out of the function (EXIT).

    `is_rare` says that a block may end there only because a call in it doesn't return.
    """

    source: int
    target: int
    is_rare: bool = False


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """The blocks of a function, each as the addresses of its instructions, in order, and its edges."""

    blocks: list[list[int]]
    edges: list[Edge]


@dataclass(slots=True)
class _End:
    """How a block ends: where it jumps, whether it may go on, and whether the target isn't known."""

    target: int | None = None
    goes_on: bool = True
    is_indirect: bool = False
    leaves: bool = False


def control_flow(function: Function) -> ControlFlow:
    """Return the control flow of a function.

    An indirect jump, as of a `switch`, may lead to each block that nothing else leads to.
    """
    machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    machine.detail = True
    machine.skipdata = True
    addresses: list[int] = []
    ends: dict[int, _End] = {}
    calls: set[int] = set()
    limit = function.start + len(function.code)
    for instruction in machine.disasm(function.code, function.start):
        addresses.append(instruction.address)
        if instruction.id == 0:  # data between instructions
            continue
        end = _end(instruction, function.start, limit)
        if end is not None:
            ends[instruction.address] = end
        elif instruction.group(capstone.CS_GRP_CALL):
            calls.add(instruction.address)
    starts = {function.start} | {end.target for end in ends.values() if end.target is not None}
    blocks: list[list[int]] = []
    for address, before in zip(addresses, [None, *addresses], strict=False):
        if address in starts or before in ends or not blocks:
            blocks.append([])
        blocks[-1].append(address)
    return ControlFlow(blocks, _edges(blocks, ends, calls))


def _end(instruction: capstone.CsInsn, low: int, high: int) -> _End | None:
    if instruction.group(capstone.CS_GRP_RET) or instruction.id in {
        x86.X86_INS_UD2,
        x86.X86_INS_HLT,
        x86.X86_INS_INT3,
    }:
        return _End(goes_on=False, leaves=True)
    if not instruction.group(capstone.CS_GRP_JUMP):
        return None
    goes_on = instruction.id != x86.X86_INS_JMP
    (operand, *_) = instruction.operands
    if operand.type != x86.X86_OP_IMM:
        return _End(goes_on=goes_on, is_indirect=True)
    if low <= operand.imm < high:
        return _End(operand.imm, goes_on)
    return _End(goes_on=goes_on, leaves=True)


def _edges(blocks: list[list[int]], ends: dict[int, _End], calls: set[int]) -> list[Edge]:
    row_of = {block[0]: row for row, block in enumerate(blocks)}
    edges: list[Edge] = []
    indirect: list[int] = []
    for row, block in enumerate(blocks):
        end = ends.get(block[-1], _End())
        if end.target is not None:
            edges.append(Edge(row, row_of.get(end.target, EXIT)))
        if end.leaves:
            edges.append(Edge(row, EXIT))
        if end.goes_on:
            edges.append(Edge(row, row + 1 if row + 1 < len(blocks) else EXIT))
        if end.is_indirect:
            indirect.append(row)
        if not calls.isdisjoint(block):
            edges.append(Edge(row, EXIT, is_rare=True))
    reached = {edge.target for edge in edges} | {0}
    unreached = [row for row in range(len(blocks)) if row not in reached]
    for row in indirect:
        edges += [Edge(row, target) for target in unreached or [EXIT]]
    return edges
