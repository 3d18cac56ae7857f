"""Forms: the boundary and the names of parts, as clients write them, in time linear in what is sent."""

from __future__ import annotations

import time

import pytest
from pgo_collector.http.forms import FormPart, form_boundary, form_parts

from tests.cpu_meter import cpu_seconds_for

pytestmark = pytest.mark.any_store


@pytest.mark.parametrize(
    ("parameters", "boundary"),
    [
        ("; boundary=abc", "abc"),
        (';charset=x;BOUNDARY="a b;c"; x=y', "a b;c"),
        ("; boundary=" + "x" * 70, "x" * 70),
        ("; boundary=" + "x" * 71, ""),
        ("; boundary=", ""),
        ('; boundary="x', ""),
        ("; xboundary=abc", ""),
        ("", ""),
    ],
)
def test_the_boundary(parameters: str, boundary: str) -> None:
    assert form_boundary(f"multipart/form-data{parameters}") == boundary


@pytest.mark.parametrize(
    ("head", "name", "file_name"),
    [
        (b'Content-Disposition: form-data; name="profile"; filename="cpu.pprof"', "profile", "cpu.pprof"),
        (b'Content-Type: x/y\r\ncontent-disposition:form-data;filename="a";name=event', "event", "a"),
        (b'Content-Disposition: form-data; filename="; name=\\"a\\""; name="b"', "b", "; name=\\"),
        (b'Content-Disposition: form-data; name="; filename=a"', "; filename=a", ""),
        (b'Content-Disposition: form-data; filename="; name=a"', None, ""),
        (b'X: y; name="a"', None, ""),
        (b"", None, ""),
    ],
)
def test_the_names_of_a_part(head: bytes, name: str | None, file_name: str) -> None:
    form = b"--x\r\n" + head + b"\r\n\r\ncontent\r\n--x--\r\n"
    assert form_parts(form, "x", 2) == ({} if name is None else {name: FormPart(b"content", file_name)})


@pytest.mark.parametrize(
    "piece", [";", '"', "\\", " ", '; "', '"\\', "; name", "; name=", "; boundary", '; x="']
)
def test_neither_takes_long(piece: str) -> None:
    began = time.process_time()
    form_boundary('multipart/form-data; x="' + piece * (63_000 // len(piece)) + '"')
    head = 'Content-Disposition: form-data; x="' + piece * (8_000 // len(piece))
    form_parts(f"--x\r\n{head}\r\n\r\n".encode() * 50 + b"--x--", "x", 60)
    assert time.process_time() - began < cpu_seconds_for(0.2)
