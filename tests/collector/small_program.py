"""The smallest program that is taken, so that no compiler is needed; nothing can be read from it."""

from __future__ import annotations

from pathlib import Path
from struct import pack

_START, _SIZE = 0x1000, 16


def small_program(build_id: bytes, *, lines: str = ".debug_line") -> bytes:
    """Return an ELF file for x86-64 with a build id, a function and debug lines, all of it hollow."""
    symbol = pack("<IBBHQQ", 1, 2, 0, 1, _START, _SIZE)
    note = pack("<III4s", 4, len(build_id), 3, b"GNU\0") + build_id
    sections = [  # name, type, content, what it links to, size of an entry
        ("", 0, b"", 0, 0),
        (".note.gnu.build-id", 7 if build_id else 1, note, 0, 0),
        (".symtab", 2, bytes(len(symbol)) + symbol, 3, len(symbol)),
        (".strtab", 3, b"\0work\0", 0, 0),
        (lines, 1, b"no lines", 0, 0),
    ]
    names = b"".join(f"{name}\0".encode() for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, names, 0, 0))
    content, headers = bytes(64), b""
    for name, kind, held, link, entry in sections:
        at = names.index(f"{name}\0".encode())
        headers += pack("<IIQQQQIIQQ", at, kind, 0, 0, len(content), len(held), link, 0, 4, entry)
        content += held
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, len(content), 0, 64, 0, 0, 64, len(sections), 5)
    return head + content[64:] + headers


def hollow_tools(folder: Path) -> str:
    """Return a PATH on which there is an llvm-symbolizer, which fails."""
    folder.mkdir()
    tool = folder / "llvm-symbolizer"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"
