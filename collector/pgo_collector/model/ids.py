"""Ids of stored profiles, traces and spans, by which a selection is narrowed to some profiles or samples.

A profile's id is a UUID: the first 128 bits of the SHA-256 of its bare protobuf. Profiles that are the same
have the same id, and a combine's result has one of its own. Traces and spans have the ids of W3C's Trace
Context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from pprof_merge.merging import EVERY_REQUEST, RequestIds

from pgo_collector.errors import ParameterInvalid

# Ids of one kind in a request. Each is looked for in every label of every sample.
MOST_IDS = 100
# Hex digits of the ids of profiles and traces, and of spans.
DIGITS, SPAN_DIGITS = 32, 16
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Ids(NamedTuple):
    """The profiles, and the traces and spans of their samples, that a selection is of; none for any."""

    profiles: tuple[str, ...] = ()
    requests: RequestIds = EVERY_REQUEST

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """Return the ids by the name of what they are of; empty for any."""
        traces, spans = self.requests
        named = {"profile": self.profiles, "trace": traces, "span": spans}
        return {name: ids for name, ids in named.items() if ids}

    @property
    def text(self) -> str:
        """Return all ids as text; empty for any."""
        return " ".join(f"{name}={','.join(ids)}" for name, ids in self.named.items())


ANY_ID = Ids()


def parse_ids(name: str, texts: Iterable[str], digits: int) -> tuple[str, ...]:
    """Return the distinct ids in some texts, each of `digits` hex digits, sorted, in lower case.

    One of 32 digits may be written as a UUID. `name` is that of the parameter. Raises ParameterInvalid.
    """
    found = {*texts}
    if len(found) > MOST_IDS:
        raise ParameterInvalid(f"{name}: {len(found):,} ids; the limit is {MOST_IDS}")
    return tuple(sorted({_parsed(name, text, digits) for text in found}))


def _parsed(name: str, text: str, digits: int) -> str:
    id_ = text.lower() if text.isascii() else ""
    if digits == DIGITS and _UUID.fullmatch(id_):
        id_ = id_.replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{digits}}}", id_):
        raise ParameterInvalid(f"{name}={text[:50]!r}: not an id, which has {digits} hex digits")
    return id_


def uuid_of(digest: str) -> str:
    """Return the id of the profile whose bare protobuf has this SHA-256, in hex, as a UUID."""
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:DIGITS]))
