"""Find the format of a profiler's file from its content, and read it as pprof."""

from __future__ import annotations

import re

from pprof_merge import Limits, inflate
from pprof_proto.other_formats import other_format

from pgo_collector.errors import NotPprof
from pgo_collector.readers.compression import unframed
from pgo_collector.readers.folded import folded_stack, read_folded
from pgo_collector.readers.perf_script import is_perf_script, read_perf_script
from pgo_collector.readers.speedscope import SCHEMA, read_whole_speedscope

FORMATS = "pprof, folded stacks, the text of perf script, or speedscope's JSON; with gzip, zstd, or neither"
_HEAD_BYTES = 4096
# Text has none of these bytes, and any profile of pprof has one of them near its beginning: the keys of the
# first two fields of its messages.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x7f]")


def pprof_of(content: bytes, limits: Limits) -> bytes:
    """Return the profile in a file as bare protobuf, if it is one: what isn't text isn't looked into.

    Raises NotPprof, LimitExceeded and MalformedProfile.
    """
    bare = inflate(unframed(content, limits), limits)
    limits.check("inflated_bytes", len(bare))
    head = bare[:_HEAD_BYTES]
    if not head or _NOT_TEXT.search(head):
        return bare
    if head.lstrip().startswith(b"{"):
        if SCHEMA.encode() in bare:
            return read_whole_speedscope(bare, limits)
    else:
        text = bare.decode(errors="backslashreplace")
        if is_perf_script(text):
            return read_perf_script(text, limits)
        if folded_stack(_first_line(text)) is not None:
            return read_folded(text, limits)
    what = other_format(bare) or "in no format that is known here"
    raise NotPprof(f"this is {what}. A file may be {FORMATS}")


def _first_line(text: str) -> str:
    """Return the first line that isn't empty or a comment."""
    found = re.match(r"(?:[ \t\r]*(?:#[^\n]*)?\n)*+([^\n]*)", text)
    return found[1] if found else ""
