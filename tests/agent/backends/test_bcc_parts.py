"""Which process was forked from which: what says so is found by the kernel's own description of its types."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pgo_agent.backends.bcc_parts import forks_program, member_offset

TEXTS = b"\0int\0task_struct\0pid\0tgid\0rest\0"


def text(word: bytes) -> int:
    return TEXTS.index(b"\0" + word + b"\0") + 1


def type_of(kind: int, name: bytes, members: int, rest: bytes = b"") -> bytes:
    return struct.pack("=III", text(name), kind << 24 | members, 4) + rest


def member(name: bytes, byte: int) -> bytes:
    return struct.pack("=III", text(name), 1, 8 * byte)


def btf(*types: bytes, magic: int = 0xEB9F) -> bytes:
    body = b"".join(types)
    return struct.pack("=HBBIIIII", magic, 1, 0, 24, 0, len(body), len(body), len(TEXTS)) + body + TEXTS


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
