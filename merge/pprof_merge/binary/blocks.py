"""Basic blocks of a function and the ways between them, from its machine code as capstone reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

import capstone
from capstone import x86

from pprof_merge.binary.elf import Binary, Function
from pprof_merge.errors import BinaryInvalid
from pprof_merge.limits import BinaryLimits

EXIT = -1
# A table of one entry is rather a pointer or a number that happens to look like one.
_FEWEST_ENTRIES = 2
_LOADS = {x86.X86_INS_MOV, x86.X86_INS_MOVSXD}


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from a block to the next one, or out of the function (EXIT).

    `is_rare` says that a block may end there only because a call in it doesn't return.
    """

    source: int
    target: int
    is_rare: bool = False

    @property
    def leaves(self) -> bool:
        """Return whether it leads out of the function."""
        return self.target == EXIT


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """The blocks of a function, each as the addresses of its instructions, in order, and its edges.

    `indirect_calls` has the addresses of calls through a pointer, and where each ends. `calls` has those of
    other calls, and of jumps to other functions, and where each leads.
    Blocks without instructions come last. Each stands for a jump table, which jumps lead to, and which leads
    to its targets, so that edges don't multiply where many jumps use one table.
    """

    blocks: list[list[int]]
    edges: list[Edge]
    indirect_calls: dict[int, int] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _End:
    """How a block ends: where it jumps, whether it may go on, and whether the target isn't known.

    `outside` is where it jumps in another function. `is_indexed` says that the jump itself looks the target
    up, and `table` is the address of its table, if it has that too.
    """

    target: int | None = None
    goes_on: bool = True
    is_indirect: bool = False
    leaves: bool = False
    is_indexed: bool = False
    table: int | None = None
    outside: int | None = None


@dataclass(slots=True)
class _Code:
    """The instructions of a function: all addresses, ends of blocks, calls, and what jump tables are used by.

    `calls` are those of functions whose address is known, and the others are in `indirect_calls`.
    `constants` has the addresses that `lea` computes from its own, and `lookups` are loads with an index.
    """

    addresses: list[int] = field(default_factory=list)
    ends: dict[int, _End] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    indirect_calls: dict[int, int] = field(default_factory=dict)
    constants: dict[int, int] = field(default_factory=dict)
    lookups: set[int] = field(default_factory=set)


def control_flow(function: Function, binary: Binary, limits: BinaryLimits) -> ControlFlow:
    """Return the control flow of a function of a program.

    An indirect jump, as of a `switch`, leads to the targets of its jump table: the one whose address its
    block takes; else, if the block looks something up, any of those that no other block takes. Without a
    table, it leads to all blocks that nothing else leads to, or out of the function. Raises BinaryInvalid if
    the tables have too many entries.
    """
    code = _code(function)
    tables = _tables(code, function.start + len(function.code), binary, limits)
    starts = {function.start} | {end.target for end in code.ends.values() if end.target is not None}
    starts.update(*tables.values())
    blocks: list[list[int]] = []
    for address, before in zip(code.addresses, [None, *code.addresses], strict=False):
        if address in starts or before in code.ends or not blocks:
            blocks.append([])
        blocks[-1].append(address)
    edges, n_tables = _edges(blocks, code, tables)
    leaving = {at: end.outside for at, end in code.ends.items() if end.outside is not None}
    every = blocks + [[] for _ in range(n_tables)]
    return ControlFlow(every, edges, code.indirect_calls, code.calls | leaving)


def straight_code(function: Function) -> tuple[list[int], set[int]]:
    """Return the addresses of a function's instructions, and those of them that never go on to the next."""
    code = _code(function)
    return code.addresses, {address for address, end in code.ends.items() if not end.goes_on}


def _code(function: Function) -> _Code:
    machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    machine.detail = True
    machine.skipdata = True
    code = _Code()
    limit = function.start + len(function.code)
    for instruction in machine.disasm(bytes(function.code), function.start):
        code.addresses.append(instruction.address)
        if instruction.id == 0:  # data between instructions
            continue
        end = _end(instruction, function.start, limit)
        if end is not None:
            code.ends[instruction.address] = end
        elif instruction.group(capstone.CS_GRP_CALL):
            (operand, *_) = instruction.operands
            if operand.type == x86.X86_OP_IMM:
                code.calls[instruction.address] = operand.imm
            else:
                code.indirect_calls[instruction.address] = instruction.address + instruction.size
        elif instruction.id == x86.X86_INS_LEA and instruction.operands[1].mem.base == x86.X86_REG_RIP:
            after = instruction.address + instruction.size
            code.constants[instruction.address] = after + instruction.operands[1].mem.disp
        elif instruction.id in _LOADS and "*" in instruction.op_str:
            code.lookups.add(instruction.address)
    return code


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
        return _indirect(operand)
    if low <= operand.imm < high:
        return _End(operand.imm, goes_on)
    return _End(goes_on=goes_on, leaves=True, outside=operand.imm)


def _indirect(operand: x86.X86Op) -> _End:
    """Return the end of a block that jumps to an address in a register or in memory."""
    if operand.type != x86.X86_OP_MEM:
        return _End(goes_on=False, is_indirect=True)
    if operand.mem.base == x86.X86_REG_RIP:  # to the next function, through a pointer
        return _End(goes_on=False, leaves=True)
    is_indexed = operand.mem.index != x86.X86_REG_INVALID
    table = operand.mem.disp if operand.mem.base == x86.X86_REG_INVALID else None
    return _End(goes_on=False, is_indirect=True, is_indexed=is_indexed, table=table)


def _tables(code: _Code, after: int, binary: Binary, limits: BinaryLimits) -> dict[int, list[int]]:
    """Return the targets of the jump tables that a function uses, by the tables' addresses.

    A table has pointers, or distances from its own start in 32 bits. It ends where an entry isn't an
    instruction of the function, or where the next table starts. Entries that are never used may lead to the
    function's end: clang has no code for what can't be reached.
    """
    if not any(end.is_indirect for end in code.ends.values()):
        return {}
    instructions, left = {*code.addresses}, limits.table_entries
    places = {*code.constants.values()} | {end.table for end in code.ends.values() if end.table is not None}
    found: dict[int, list[int]] = {}
    for place in sorted(places):
        for width in (8, 4):
            targets: list[int] = []
            at = place
            while at == place or at not in places:
                target = binary.pointer(at) if width == 8 else binary.number(at, width)
                if target is not None and width != 8:
                    target += place
                if target is None or (target not in instructions and target != after):
                    break
                if target != after:
                    targets.append(target)
                at += width
            left -= (at - place) // width
            if left < 0:
                raise BinaryInvalid(f"a function's jump tables have over {limits.table_entries:,} entries")
            if len(targets) >= _FEWEST_ENTRIES:
                found[place] = sorted({*targets})
                break
    return found


def _edges(blocks: list[list[int]], code: _Code, tables: dict[int, list[int]]) -> tuple[list[Edge], int]:
    """Return the edges, and the number of blocks that stand for jump tables."""
    row_of = {block[0]: row for row, block in enumerate(blocks)}
    edges: list[Edge] = []
    indirect: list[int] = []
    for row, block in enumerate(blocks):
        end = code.ends.get(block[-1], _End())
        if end.target is not None:
            edges.append(Edge(row, row_of.get(end.target, EXIT)))
        if end.leaves:
            edges.append(Edge(row, EXIT))
        if end.goes_on:
            edges.append(Edge(row, row + 1 if row + 1 < len(blocks) else EXIT))
        if end.is_indirect:
            indirect.append(row)
        if not (code.calls.keys().isdisjoint(block) and code.indirect_calls.keys().isdisjoint(block)):
            edges.append(Edge(row, EXIT, is_rare=True))
    own = {row: _own_table(blocks[row], code, tables) for row in indirect}
    shared = sorted({*tables} - {*own.values()}) or sorted(tables)
    # The blocks that stand for tables, by the tables that each stands for.
    places: dict[tuple[int, ...], int] = {}
    for row, table in own.items():
        used = (table,) if table is not None else tuple(shared) if _looks_up(blocks[row], code) else ()
        edges.append(Edge(row, len(blocks) + places.setdefault(used, len(places))))
    targets = {used: {row_of[target] for table in used for target in tables[table]} for used in places}
    reached = {0}.union((edge.target for edge in edges), *targets.values())
    unreached = [row for row in range(len(blocks)) if row not in reached]
    for used, place in places.items():
        edges += [Edge(len(blocks) + place, row) for row in sorted(targets[used]) or unreached or [EXIT]]
    return edges, len(places)


def _own_table(block: list[int], code: _Code, tables: dict[int, list[int]]) -> int | None:
    """Return the jump table that a block's last instruction or the block itself names; None if none."""
    of_jump = code.ends[block[-1]].table
    if of_jump in tables:
        return of_jump
    named = [code.constants[address] for address in block if code.constants.get(address) in tables]
    return named[-1] if named else None


def _looks_up(block: list[int], code: _Code) -> bool:
    """Return whether a block that ends with an indirect jump may read its target from a table."""
    return code.ends[block[-1]].is_indexed or not code.lookups.isdisjoint(block)
