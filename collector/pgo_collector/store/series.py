"""Series: what one kind of process sends, by service, type and labels; and the texts of labels."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from pgo_collector.errors import LabelsInvalid

SERVICE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
MOST_LABELS = 16
# A label is a folder of the blob's path, and no file system takes longer names.
_LONGEST_LABEL = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# Keys and values, by key; none is empty, no key is there twice.
Labels = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """Profiles of one type, from the processes of one service that have the same labels."""

    service: str
    type: str
    labels: Labels = ()

    @property
    def folders(self) -> str:
        """The path of its blobs, below that of all."""
        return "/".join((self.service, self.type, *map(_text, self.labels)))


def parse_labels(text: str) -> Labels:
    """The labels of `k=v,k2=v2`, percent-encoded parts; one without a value is none. Raises LabelsInvalid."""
    labels: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise LabelsInvalid(f"{part[:50]!r} is no label, which is key=value")
        label = unquote_part(key), unquote_part(value)
        if not label[0] or len(_text(label)) > _LONGEST_LABEL:
            raise LabelsInvalid(f"{part[:50]!r} has no key, or is longer than {_LONGEST_LABEL} bytes")
        if labels.setdefault(*label) != label[1]:
            raise LabelsInvalid(f"the label {label[0]!r} has two values")
    if len(labels) > MOST_LABELS:
        raise LabelsInvalid(f"there are more than {MOST_LABELS} labels")
    return tuple(sorted((key, value) for key, value in labels.items() if value))


def unquote_part(text: str) -> str:
    """A key or a value, from its percent-encoding. Raises LabelsInvalid."""
    try:
        plain = unquote(text, errors="strict").strip()
    except UnicodeDecodeError:
        raise LabelsInvalid(f"{text[:50]!r} isn't UTF-8") from None
    if _CONTROL.search(plain):
        raise LabelsInvalid(f"{text[:50]!r} has a control character")
    return plain


def labels_text(labels: Labels) -> str:
    """As `parse_labels` reads it; one text for the same labels."""
    return ",".join(map(_text, labels))


def _text(label: tuple[str, str]) -> str:
    return "=".join(quote(part, safe="") for part in label)
