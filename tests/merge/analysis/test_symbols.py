"""Lists of symbols, from nm or plain; tests/interop/test_report.py has those of real programs."""

from __future__ import annotations

import pytest
from pprof_merge.analysis import SymbolsInvalid
from pprof_merge.analysis.coverage import parse_symbols


@pytest.mark.parametrize(
    ("line", "function"),
    [
        (b"  4d53a0 T main.main", b"main.main"),
        (b"00000000004d5400 t main.main.func1", b"main.main.func1"),
        (b"  4d5400       1189 T main.main", b"main.main"),
        (b"  4d5400 T main.f[go.shape.interface { Len() int }]", b"main.f[go.shape.interface { Len() int }]"),
        (b"  4d53a0 T runtime.memmove.abi0", b"runtime.memmove"),
        (b"  4d53a0 T main.main\r", b"main.main"),
        (b"  4d53a0 W weak", b"weak"),
        (b"main.(*T).f", b"main.(*T).f"),
        (b"  main.f \t", b"main.f"),
        (b"main.f[go.shape.struct { a int }]", b"main.f[go.shape.struct { a int }]"),
        (b"add", b"add"),  # `add` is also a hexadecimal number
        (b"runtime.memmove.abi0", b"runtime.memmove"),
        (b"f\xff", b"f\xff"),
    ],
)
def test_functions(line: bytes, function: bytes) -> None:
    assert parse_symbols(line) == {function}
    assert parse_symbols(b"\n\n" + line + b"\n") == {function}


@pytest.mark.parametrize(
    "line",
    [
        b"  600840 D go:main.inittasks",
        b"  4f2f40       16 R main..dict.f[int]",
        b"                 U printf",
        b"         U printf",
        b"       0 _ go.go",
        b"  4d5d80 b main.count",
        b"",
        b" ",
    ],
)
def test_what_is_no_function(line: bytes) -> None:
    assert parse_symbols(line + b"\n1 T f\n") == {b"f"}
    with pytest.raises(SymbolsInvalid, match="no function"):
        parse_symbols(line)
