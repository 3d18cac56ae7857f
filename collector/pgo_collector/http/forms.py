"""Forms: the parts of a multipart body, by name. Workers read them, since a body may have many parts.

The standard library's parser of headers takes time quadratic in their length, so expressions read the two
parameters here; each reads any text in linear time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pgo_collector.errors import PushInvalid

FORM = "multipart/form-data"
_LONGEST_PART_HEAD = 8 << 10
# RFC 2046, 5.1.1: a boundary has up to 70 characters.
_BOUNDARY = re.compile(
    r""";[ \t]*boundary[ \t]*=[ \t]*(?:"([^"\r\n]{1,70})"|([^"\s;,]{1,70})(?![^\s;,]))""", re.IGNORECASE
)


def _parameter(name: bytes) -> re.Pattern[bytes]:
    """Return the expression for a parameter of a part's disposition: RFC 7578, 4.2.

    The name in the value of another parameter is none.
    """
    return re.compile(
        rb"""^content-disposition[ \t]*:[^;"\r\n]*+"""
        rb"""(?:;[ \t]*+(?!%b[ \t]*=)[^;"\r\n]*+(?:"(?:[^"\\\r\n]|\\[^\r\n])*+")?+[ \t]*+)*+"""
        rb""";[ \t]*+%b[ \t]*=[ \t]*+(?:"([^"\r\n]*+)"|([^"\s;]++))""" % (name, name),
        re.IGNORECASE | re.MULTILINE,
    )


_NAME, _FILE_NAME = _parameter(b"name"), _parameter(b"filename")


class FormPart(NamedTuple):
    """The content of a part, and the name of the file that it was, empty if it was none."""

    content: bytes
    file_name: str


def is_form(content_type: str) -> bool:
    """Return whether a content type is that of a form."""
    return FORM in content_type.lower()


def form_boundary(content_type: str) -> str:
    """Return the boundary in a content type, empty if there is none."""
    found = _BOUNDARY.search(content_type)
    return (found[1] or found[2]) if found else ""


def form_parts(content: bytes, boundary: str, most: int, setting: str = "") -> dict[str, FormPart]:
    """Return the parts of a form by name; of several with a name, the last.

    Raises PushInvalid for more than `most` parts, where it names the setting that bounds them.
    """
    delimiter = b"\r\n--" + boundary.encode(errors="replace")
    _, *chunks = (b"\r\n" + content).split(delimiter, most + 1)
    if len(chunks) > most:
        raise PushInvalid(f"the form has more than {most} parts{setting and f' ({setting})'}")
    parts = {}
    for chunk in chunks:
        head, blank_line, body = chunk.partition(b"\r\n\r\n")
        if not blank_line or len(head) > _LONGEST_PART_HEAD:
            continue  # the end of the form, or what isn't a part
        if name := _found(_NAME, head):
            parts[name] = FormPart(body, _found(_FILE_NAME, head))
    return parts


def _found(parameter: re.Pattern[bytes], head: bytes) -> str:
    found = parameter.search(head)
    return (found[1] or found[2] or b"").decode(errors="replace") if found else ""
