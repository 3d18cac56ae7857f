"""JSON of a bounded number of values, which a client has sent."""

from __future__ import annotations

import json
from typing import Any

_LONGEST_TEXT = 4 << 20
# Bytes of the text that count as a value, too: json_format looks at each letter.
_BYTES_OF_VALUE = 100


def read_json(text: bytes, most: int) -> Any:
    """Return what a JSON text says. Raises ValueError, also for more than `most` values, or RecursionError.

    They are counted first, with the separators in strings, and one for each hundred bytes: an empty object
    has two bytes, and takes a hundred times the memory. A long string takes ten times its own: an escape is
    an object, too, and one letter may make four bytes of each byte.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"it is longer than {_LONGEST_TEXT:,} bytes; send protobuf, or less")
    if len(text) // _BYTES_OF_VALUE + sum(map(text.count, (b",", b"{", b"["))) > most:
        raise ValueError(f"it has more than {most:,} values; send protobuf, or less")
    return json.loads(text)
