"""Forms: the parts of a multipart body, by name. Workers read them, since a body may have many parts."""

from __future__ import annotations

from email.errors import HeaderParseError
from email.message import Message
from email.parser import BytesHeaderParser

from pgo_collector.errors import PushInvalid

FORM = "multipart/form-data"
_LONGEST_PART_HEAD = 8 << 10


def is_form(content_type: str) -> bool:
    """Return whether a content type is that of a form."""
    return FORM in content_type.lower()


def form_boundary(content_type: str) -> str:
    """Return the boundary in a content type, empty if there is none."""
    message = Message()
    message["Content-Type"] = content_type
    return message.get_boundary("")


def form_parts(content: bytes, boundary: str, most: int, setting: str = "") -> dict[str, bytes]:
    """Return the parts of a form by name; of several with a name, the last.

    Raises PushInvalid, also for more than `most` parts, where it names the setting that bounds them.
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
        try:
            headers = BytesHeaderParser().parsebytes(head.lstrip())
            name = headers.get_param("name", header="Content-Disposition")
        except (HeaderParseError, ValueError) as error:
            raise PushInvalid("a part of the form has no header that can be read") from error
        if isinstance(name, str):
            parts[name] = body
    return parts
