"""Series: what one kind of process sends, by service, type and labels; and the texts of labels."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import quote, unquote

from pgo_collector.errors import LabelsInvalid

SERVICE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
MOST_LABELS = 16
# A label is a folder of the blob's path, and no file system takes longer names.
_LONGEST_LABEL = 255
# All labels together are in that path, in bytes. A path may have 4,095: what is left is for the day and the
# name of a blob, and for wherever the data folder or a backup lies: SQLite takes no paths over 512.
LONGEST_SERIES = 2000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# Keys and values, by key; none is empty, no key is there twice.
Labels = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """Profiles of one type, from the processes of one service that have the same labels.

    What a roll-up leaves of several series is one of its own: `dropped` are the keys, in order, of the
    labels that their profiles had besides. Nothing is ever sent to such a series.
    """

    service: str
    type: str
    labels: Labels = ()
    dropped: tuple[str, ...] = ()

    @classmethod
    def parse(cls, service: str, type_: str, labels_text: str) -> Series:
        """The series of which that is the `labels_text`. Raises LabelsInvalid."""
        labels = sorted(_parsed(labels_text).items())
        return cls(
            service,
            type_,
            tuple((key, value) for key, value in labels if value),
            tuple(key for key, value in labels if not value),
        )

    @property
    def labels_text(self) -> str:
        """`k=v,k2=v2`, percent-encoded parts in the order of their keys; those dropped have no value."""
        return ",".join(self._texts)

    @property
    def folders(self) -> str:
        """The path of its blobs, below that of all."""
        return "/".join((self.service, self.type, *self._texts))

    def check_path(self) -> None:
        """Raises LabelsInvalid if the paths of its blobs would be too long."""
        length = len(self.folders)
        if length > LONGEST_SERIES:
            raise LabelsInvalid(
                f"service, type and labels make a path of {length} bytes, {length - LONGEST_SERIES} more "
                f"than the {LONGEST_SERIES} that it may have: send fewer or shorter labels"
            )

    def rolled_up(self, kept: Collection[str]) -> Series:
        """What a roll-up leaves of it if these labels stay; itself if none are named."""
        if not kept:
            return self
        labels = tuple(label for label in self.labels if label[0] in kept)
        gone = (key for key, _ in self.labels if key not in kept)
        return self._replace(labels=labels, dropped=tuple(sorted({*self.dropped, *gone})))

    def joined(self, other: Series) -> Series:
        """The series of what is in this one and in another, of the same labels."""
        return self._replace(dropped=tuple(sorted({*self.dropped, *other.dropped})))

    @property
    def _texts(self) -> list[str]:
        return [*map(_text, sorted((*self.labels, *((key, "") for key in self.dropped))))]


def parse_labels(text: str) -> Labels:
    """The labels of `k=v,k2=v2`, percent-encoded parts; one without a value is none. Raises LabelsInvalid."""
    return tuple(sorted((key, value) for key, value in parse_label_values(text).items() if value))


def parse_label_values(text: str) -> dict[str, str]:
    """Return the value of each key in such a text, which may be empty. Raises LabelsInvalid."""
    labels = _parsed(text)
    if len(labels) > MOST_LABELS:
        raise LabelsInvalid(f"there are more than {MOST_LABELS} labels")
    return labels


def _parsed(text: str) -> dict[str, str]:
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
    return labels


def unquote_part(text: str) -> str:
    """A key or a value, from its percent-encoding. Raises LabelsInvalid."""
    try:
        plain = unquote(text, errors="strict").strip()
    except UnicodeDecodeError:
        raise LabelsInvalid(f"{text[:50]!r} isn't UTF-8") from None
    if _CONTROL.search(plain):
        raise LabelsInvalid(f"{text[:50]!r} has a control character")
    return plain


def _text(label: tuple[str, str]) -> str:
    return "=".join(quote(part, safe="") for part in label)
