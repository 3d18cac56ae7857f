"""Test what programs with bcc have in common, which the kernel's own description of its types tells."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from pgo_agent.backends.bcc_parts import can_copy, copies_program, forks_program, member_offset, read_copy

TEXTS = b"\0int\0task_struct\0pid\0tgid\0rest\0mm\0start_stack\0thread\0thread_struct\0fsbase\0"
HELPER = b"bpf_task_pt_regs\0"


def text(word: bytes) -> int:
    return TEXTS.index(b"\0" + word + b"\0") + 1 if word else 0


def type_of(kind: int, name: bytes, members: int, rest: bytes = b"") -> bytes:
    return struct.pack("=III", text(name), kind << 24 | members, 4) + rest


def member(name: bytes, byte: int) -> bytes:
    return struct.pack("=III", text(name), 1, 8 * byte)


def btf(*types: bytes, magic: int = 0xEB9F, texts: bytes = TEXTS) -> bytes:
    body = b"".join(types)
    return struct.pack("=HBBIIIII", magic, 1, 0, 24, 0, len(body), len(body), len(texts)) + body + texts


OTHERS = (
    *(type_of(1, b"int", 0, bytes(4)), type_of(2, b"rest", 0), type_of(3, b"rest", 0, bytes(12))),
    *(
        type_of(4, b"rest", 2, member(b"pid", 0) + member(b"tgid", 4)),
        type_of(5, b"task_struct", 1, bytes(12)),
    ),
    *(
        type_of(6, b"rest", 2, bytes(16)),
        type_of(13, b"rest", 1, bytes(8)),
        type_of(14, b"rest", 0, bytes(4)),
    ),
    *(
        type_of(15, b"rest", 3, bytes(36)),
        type_of(17, b"rest", 0, bytes(4)),
        type_of(19, b"rest", 1, bytes(12)),
    ),
)
TASK = type_of(4, b"task_struct", 2, member(b"pid", 1264) + member(b"tgid", 1268))


def test_a_member_is_found_after_types_of_all_kinds() -> None:
    assert member_offset(btf(*OTHERS, TASK), "task_struct", "tgid") == 1268
    assert member_offset(btf(TASK, *OTHERS), "task_struct", "pid") == 1264


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"BTF", btf(*OTHERS), btf(TASK, magic=0x9FEB), btf(type_of(4, b"task_struct", 1, bytes(12)))),
        *(btf(*OTHERS, TASK)[:60], btf(type_of(4, b"task_struct", 60_000))),
    ],
)
def test_a_kernel_that_does_not_describe_itself_tells_of_no_forks(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "vmlinux"
    assert forks_program(file) == ""
    file.write_bytes(content)
    assert forks_program(file) == ""
    file.write_bytes(btf(TASK))
    assert "ctx->args[1] + 1268" in forks_program(file)


MEMORY = type_of(4, b"", 1, member(b"start_stack", 480))
THREAD = type_of(
    4, b"task_struct", 3, member(b"tgid", 1268) + member(b"mm", 1136) + member(b"thread", 3088)
) + type_of(4, b"thread_struct", 1, member(b"fsbase", 40))


def test_stacks_are_copied_where_the_kernel_has_what_that_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    contents = {
        "all": btf(*OTHERS, THREAD, MEMORY, texts=TEXTS + HELPER),
        "no helper": btf(*OTHERS, THREAD, MEMORY),
        "no memory": btf(*OTHERS, THREAD, texts=TEXTS + HELPER),
        "other memory": btf(*OTHERS, TASK, MEMORY, texts=TEXTS + HELPER),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert [name for name in [*contents, "gone"] if can_copy(tmp_path / name)] == ["all"]
    text = copies_program(tmp_path / "all")
    assert "copied_thread() + 1136" in text
    assert "mm + 480" in text
    assert "copied_thread" not in copies_program(tmp_path / "no helper")
    shutil.copy(tmp_path / "all", tmp_path / "other machine")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not can_copy(tmp_path / "other machine")


def test_a_copy_has_the_registers_in_the_order_of_dwarf() -> None:
    registers, stack = read_copy(struct.pack("=21QQ", *range(100, 121), 4) + b"copycut")
    # rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip
    assert registers == [110, 112, 111, 105, 113, 114, 104, 119, 109, 108, 107, 106, 103, 102, 101, 100, 116]
    assert stack == b"copy"
