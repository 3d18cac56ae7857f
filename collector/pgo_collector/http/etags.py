"""Entity tags of RFC 9110: a strong one for each merge, and whether a client has it already."""

from __future__ import annotations

import re

_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


def quoted(etag: str) -> str:
    """The tag as the ETag header has it."""
    return f'"{etag}"'


def matches(if_none_match: str, etag: str) -> bool:
    """Whether If-None-Match covers the tag: `*`, or a list of tags, weak ones too (RFC 9110, 13.1.2)."""
    return if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match)
