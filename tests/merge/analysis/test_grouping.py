"""Groupings: the names of packages and files in frames, as profilers write functions."""

from __future__ import annotations

import pytest
from pprof_merge.analysis.grouping import NAMES_OF_FRAMES
from pprof_merge.analysis.stacks import Frame


@pytest.mark.parametrize(
    ("function", "package"),
    [
        ("main.main", "main"),
        ("net/http.(*conn).serve", "net/http"),
        ("github.com/user/shop/cart.(*Cart[...]).Add.func1.2", "github.com/user/shop/cart"),
        ("slices.pdqsortCmpFunc[go.shape.*github.com/user/shop.Item]", "slices"),
        ("gopkg.in/yaml%2ev3.Unmarshal", "gopkg.in/yaml.v3"),
        ("gopkg.in/yaml%2ev3.(*parser).parse", "gopkg.in/yaml.v3"),
        ("type:.eq.github.com/user/shop.Item", "github.com/user/shop"),
        ("type:.hash.main.key", "main"),
        ("main.glob..func1", "main"),
        ("vendor/golang.org/x/net/dns/dnsmessage.(*Parser).Start", "vendor/golang.org/x/net/dns/dnsmessage"),
        ("main.run.func1.(*T).m.2/x.y", "main"),
        ("tokio::runtime::park::park", "tokio"),
        ("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "alloc"),
        ("std::sort(int*, int*)", "std"),
        ("memeqbody", "<unknown>"),
        ("operator new(unsigned long)", "<unknown>"),
        ("finish_task_switch.isra.0", "<unknown>"),
        ("sort.part.0.cold", "<unknown>"),
        ("sort.Slice", "sort"),
        ("<unknown>", "<unknown>"),
        ("[libc.so.6]", "[libc.so.6]"),
    ],
)
def test_packages(function: str, package: str) -> None:
    assert NAMES_OF_FRAMES["package"](Frame(function, "", 0)) == package


@pytest.mark.parametrize(
    ("name", "path", "file"),
    [
        ("main.main", "/src/shop/main.go", "/src/shop/main.go"),
        ("pthread_create", "./nptl/../nptl/./pthread_create.c", "nptl/pthread_create.c"),
        ("main.main", "", "<unknown>"),
        ("<unknown>", "", "<unknown>"),
        ("[libc.so.6]", "", "[libc.so.6]"),
    ],
)
def test_files(name: str, path: str, file: str) -> None:
    assert NAMES_OF_FRAMES["file"](Frame(name, path, 1)) == file
