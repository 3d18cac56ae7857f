"""The smallest program that is taken, so that no compiler is needed; nothing can be read from it."""

from __future__ import annotations

from pathlib import Path
from struct import pack

# The file is mapped as one segment, whose code comes first.
_MAPPED_AT, _CODE_AT, _SIZE = 0x1000, 64 + 56, 16
_ALLOCATED_CODE = 6  # SHF_ALLOC and SHF_EXECINSTR


# Where the function is in the file.
WORK_AT = _CODE_AT + 4


def small_program(build_id: bytes, *, lines: str = ".debug_line", symbols: bool = True) -> bytes:
    """Return an ELF file for x86-64 with a build id, the function `work`, and hollow debug lines."""
    symbol = pack("<IBBHQQ", 1, 2, 0, 1, _MAPPED_AT + _CODE_AT, _SIZE)
    note = pack("<III4s", 4, len(build_id), 3, b"GNU\0") + build_id
    sections = [  # name, type, flags, content, what it links to, size of an entry
        ("", 0, 0, b"", 0, 0),
        (".text", 1, _ALLOCATED_CODE, b"\x90" * _SIZE, 0, 0),
        (".note.gnu.build-id", 7 if build_id else 1, 0, note, 0, 0),
        (*((".symtab", 2) if symbols else (".others", 1)), 0, bytes(len(symbol)) + symbol, 4, len(symbol)),
        (".strtab", 3, 0, b"\0work\0", 0, 0),
        (lines, 1, 0, b"no lines", 0, 0),
    ]
    names = b"".join(f"{name}\0".encode() for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, 0, names, 0, 0))
    content, headers = bytes(_CODE_AT), b""
    for name, kind, flags, held, link, entry in sections:
        at = names.index(f"{name}\0".encode())
        address = _MAPPED_AT + len(content) if flags else 0
        headers += pack("<IIQQQQIIQQ", at, kind, flags, address, len(content), len(held), link, 0, 4, entry)
        content += held
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, len(content), 0, 64, 56, 1, 64, len(sections), 6)
    segment = pack("<IIQQQQQQ", 1, 5, 0, _MAPPED_AT, _MAPPED_AT, len(content), len(content), 0x1000)
    return head + segment + content[_CODE_AT:] + headers


def hollow_tools(folder: Path) -> str:
    """Return a PATH on which there is an llvm-symbolizer, which fails."""
    folder.mkdir()
    tool = folder / "llvm-symbolizer"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"
