"""Series: service, type and labels of profiles that belong together, and how labels are written as text.

A profile is named by its series and its identity, which are in the path of its file below `blobs/`, too. The
services that a key is for are its `Scope`.

Some labels are reserved: the collector itself gives a meaning to them.

| label | says | who may send it |
|---|---|---|
| `service_name` | what a sender calls the service, where no service can have that name | with a name that becomes the service's |
| `profile_name` | what a profile of the type `other` measures | with that type, and no name that another type has |
| `start_lines` | where the functions of a joined profile got their start lines from | nobody: the collector sets it |
| `__…` | what Grafana's clients know profile types by, as `__name__` | nobody; pushes leave it out |

A sent label that says otherwise is refused. Stored before that was so, it doesn't count: a series is of the
service and type that it is stored as.
"""  # noqa: E501 - a table

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from string import ascii_letters, digits
from typing import NamedTuple
from urllib.parse import quote, unquote

from pgo_collector.errors import KeyMalformed, LabelsInvalid
from pgo_collector.model.profile_types import OTHER, START_LINES, TYPES_BY_NAME
from pgo_collector.model.services import BETWEEN
from pgo_collector.model.times import DAY_NANOS

# Stands for all services; it can't be the name of one.
EVERY_SERVICE = "*"
SERVICE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_SERVICE = re.compile(SERVICE_PATTERN)
_LONGEST_SERVICE = 200
_NOT_IN_SERVICES = re.compile(r"[^A-Za-z0-9._-]")
# Reserved labels, and how the keys of more of them begin.
SERVICE_NAME, PROFILE_NAME = "service_name", "profile_name"
PRIVATE_PREFIX = "__"
MOST_LABELS = 16
# Labels of stored series, which the clients of other protocols may have sent: as many as fit in a path.
_MOST_STORED = 1 << 10
# Bytes of a label as text. It is a folder in the blob's path, and file systems take no longer names.
_LONGEST_LABEL = 255
# Characters that stand for themselves in percent-encoding: those that `quote` never encodes.
_NEVER_ENCODED = f"{ascii_letters}{digits}_.-~".encode()
# More isn't looked at, not even for blanks around it: all profiles of a request may have the same long label.
_LONGEST_GIVEN = 4 * _LONGEST_LABEL
# Bytes of a series' folders. A path may have 4,095 bytes. The rest is for the day, the blob's file name, and
# the path of the data folder or backup: SQLite takes no paths over 512 bytes.
LONGEST_SERIES = 2000
# Characters of a series' labels with which it may be in a cache of thousands.
SHORT_LABELS = 500
BLOB_SUFFIX = ".pb.gz"
INPUTS_SUFFIX = ".inputs"
_NAME = re.compile(
    rf"(?P<service>{SERVICE_PATTERN})/(?P<type>[a-z_]+)/(?P<labels>(?:[^/=]+=[^/=]*/)*)\d{{4}}-\d{{2}}-\d{{2}}/"
    r"(?P<time_nanos>-?\d{1,19})-(?P<digest>[0-9a-f]{64})\.pb\.gz"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# Keys and values, sorted by key; no key or value is empty, no key comes twice.
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """The services that a key is for: names, or patterns in which `*` matches any text. Default: all.

    Statements on the catalog take it: see `catalog.selection_sql`.
    """

    patterns: tuple[str, ...] = (EVERY_SERVICE,)

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Return the scope of comma-separated patterns. Raises KeyMalformed, which doesn't quote the text."""
        patterns = text.split(",")
        if not all(_SERVICE.fullmatch(pattern.replace("*", "a")) for pattern in patterns):
            raise KeyMalformed(
                "service= takes names of services, or patterns with *, with commas between them"
            )
        return cls(tuple(dict.fromkeys(patterns)))

    def __str__(self) -> str:
        return ",".join(self.patterns)

    def includes(self, service: str) -> bool:
        """Return whether a pattern matches the name of a service, or that of each of several.

        The service may itself be a pattern, such as `*` for all services. Only a `*` matches a `*`, so this
        returns True only if the scope has every service that the pattern has.
        """
        return self.is_every or all(
            any(fnmatchcase(name, pattern) for pattern in self.patterns) for name in service.split(BETWEEN)
        )

    @property
    def only_service(self) -> str | None:
        """The service if the scope is the name of just one, else None."""
        first, *others = self.patterns
        return None if others or "*" in first else first

    @property
    def is_every(self) -> bool:
        """Return whether it has all services."""
        return EVERY_SERVICE in self.patterns


EVERY_SCOPE = Scope()


class Series(NamedTuple):
    """The profiles of one type, from the processes of one service with the same labels.

    A roll-up that drops labels makes one new series out of several. Its `dropped` are the keys, in order, of
    the labels that were dropped. No profile is ever submitted to such a series.
    """

    service: str
    type: str
    labels: Labels = ()
    dropped: tuple[str, ...] = ()

    @classmethod
    def parse(cls, service: str, type_: str, labels_text: str) -> Series:
        """Return the series with this `labels_text`. Raises LabelsInvalid."""
        labels = sorted(parse_labels(labels_text, _MOST_STORED).items())
        return cls(
            service,
            type_,
            tuple((key, value) for key, value in labels if value),
            tuple(key for key, value in labels if not value),
        )

    @property
    def labels_text(self) -> str:
        """Return the labels as `k=v,k2=v2`: percent-encoded, sorted by key, dropped ones without a value."""
        return ",".join(map(_text, sorted((*self.labels, *((key, "") for key in self.dropped)))))

    @property
    def folders(self) -> str:
        """Return the path below `blobs/` of the folder that holds the series' days."""
        labels = self.labels_text.replace(",", "/")  # a comma in a label is percent-encoded
        return "/".join(filter(None, (self.service, self.type, labels)))

    def check_path(self) -> None:
        """Raise LabelsInvalid if the paths of the series' blobs would be too long."""
        length = len(f"{self.service}/{self.type}/{self.labels_text}")
        if length > LONGEST_SERIES:
            raise LabelsInvalid(
                f"service, type and labels make a path of {length} bytes; the limit is {LONGEST_SERIES}:"
                " send fewer or shorter labels"
            )

    def rolled_up(self, kept: Collection[str]) -> Series:
        """Return the series into which a roll-up that keeps these labels puts this one's profiles.

        Without labels to keep it is this series itself: the roll-up drops no labels.
        """
        if not kept:
            return self
        labels = tuple(label for label in self.labels if label[0] in kept)
        gone = (key for key, _ in self.labels if key not in kept)
        return self._replace(labels=labels, dropped=tuple(sorted({*self.dropped, *gone})))

    def merged_with(self, other: Series) -> Series:
        """Return the series of the profiles of this one and of another with the same labels.

        It drops the labels that either of them drops.
        """
        return self._replace(dropped=tuple(sorted({*self.dropped, *other.dropped})))


def parse_labels(text: str, most: int = MOST_LABELS) -> dict[str, str]:
    """Return the value of each key of `k=v,k2=v2` with percent-encoded parts; a value may be empty.

    Raises LabelsInvalid.
    """
    labels: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise LabelsInvalid(f"{part[:50]!r} is not a label: write key=value")
        _add(labels, unquote_part(key), unquote_part(value))
    if len(labels) > most:
        raise LabelsInvalid(f"{len(labels)} labels; the limit is {most}")
    return labels


def labels_of_pairs(pairs: Iterable[tuple[str, str]], most: int) -> Labels:
    """Return the labels of keys and values, up to `most`; a label without a value is left out.

    Raises LabelsInvalid.
    """
    labels: dict[str, str] = {}
    for key, value in pairs:
        if len(key) + len(value) > _LONGEST_GIVEN:
            raise _unfit(key, value)
        label = key.strip(), value.strip()
        _check_characters("=".join(label))
        _add(labels, *label)
    if len(labels) > most:
        raise LabelsInvalid(f"{len(labels)} labels; the limit is {most}")
    return tuple(sorted((key, value) for key, value in labels.items() if value))


def _add(labels: dict[str, str], key: str, value: str) -> None:
    """Add a label. Raises LabelsInvalid."""
    # What is too long as it is isn't looked at further.
    longest = _LONGEST_LABEL - len("=")
    if not key or len(key) + len(value) > longest or _encoded_length(key + value) > longest:
        raise _unfit(key, value)
    if labels.setdefault(key, value) != value:
        raise LabelsInvalid(f"the label {key!r} has two values: send one")


def _unfit(key: str, value: str) -> LabelsInvalid:
    shown = f"{key[:50]}={value[:50]}"[:50]
    return LabelsInvalid(
        f"the label {shown!r} has no key, or more than {_LONGEST_LABEL} percent-encoded bytes"
    )


def unquote_part(text: str) -> str:
    """Return a label's key or value from its percent-encoding. Raises LabelsInvalid."""
    try:
        part = unquote(text, errors="strict").strip()
    except UnicodeDecodeError:
        raise LabelsInvalid(f"the label part {text[:50]!r} isn't percent-encoded UTF-8") from None
    _check_characters(part)
    return part


def _check_characters(text: str) -> None:
    """Raise LabelsInvalid if the text of a label, or of a part of it, has a control character."""
    if _CONTROL.search(text):
        raise LabelsInvalid(f"{text[:50]!r} has a control character, which labels can't have")


def _encoded_length(text: str) -> int:
    """Return the length of a text in percent-encoding, without encoding it, which takes far longer."""
    content = text.encode()
    return len(content) + 2 * len(content.translate(None, _NEVER_ENCODED))


def _text(label: tuple[str, str]) -> str:
    return "=".join(quote(part, safe="") for part in label)


def service_called(name: str) -> str:
    """Return the service that a sender means by a name: with `-` for each character that names can't have.

    Empty if nothing is left.
    """
    return _NOT_IN_SERVICES.sub("-", name).lstrip("._-")[:_LONGEST_SERVICE]


def sent_labels(service: str, type_: str, labels: Iterable[tuple[str, str]]) -> Labels:
    """Return the labels of a sent profile; one without a value is left out.

    Raises LabelsInvalid if one says other than what the profile is stored as.
    """
    sent = tuple(sorted((key, value) for key, value in labels if value))
    for key, value in sent:
        if key == SERVICE_NAME and service_called(value) != service:
            raise LabelsInvalid(
                f"the label {SERVICE_NAME}={value[:50]} says another service than {service!r}; leave it out"
            )
        if key == PROFILE_NAME and type_ != OTHER:
            raise LabelsInvalid(
                f"the label {PROFILE_NAME} is for profiles of the type {OTHER!r} alone; leave it out"
            )
        if key == PROFILE_NAME and value in TYPES_BY_NAME:
            raise LabelsInvalid(
                f"the label {PROFILE_NAME}={value} says another type than {OTHER!r}; send it as that type"
            )
        if key == START_LINES:
            raise LabelsInvalid(f"the label {START_LINES} is the collector's own; leave it out")
        if key.startswith(PRIVATE_PREFIX):
            raise LabelsInvalid(
                f"the label {key[:50]!r}: keys that begin with {PRIVATE_PREFIX} are for types; leave it out"
            )
    return sent


def name_of_service(service: str, stored: str) -> str:
    """Return what clients know a service as, given the stored `service_name` of a series or ""."""
    return stored if service_called(stored) == service else service


def name_of_profile(type_: str, stored: str) -> str:
    """Return the name of a series' profiles, given its stored `profile_name` or ""; "" for its type's."""
    return stored if type_ == OTHER and stored not in TYPES_BY_NAME else ""


def is_hidden(key: str) -> bool:
    """Return whether Grafana's clients don't see a stored label: profile types say what it would say."""
    return key == PROFILE_NAME or key.startswith(PRIVATE_PREFIX)


class Identity(NamedTuple):
    """Time and content of a profile. Profiles of one series with the same identity are one profile, however
    often it is sent. Identities sort in canonical order: by time in ns since 1970, then by SHA-256 in hex.
    """

    time_nanos: int
    digest: str


class BlobName(NamedTuple):
    """The name of a profile, whether it has a blob of its own or is inside a combined one.

    Its text is the path of such a blob below `blobs/`.
    """

    series: Series
    identity: Identity

    def __str__(self) -> str:
        # Those of a series with short labels are cached: thousands of names share a few series.
        series = self.series
        is_short = sum([len(key) + len(value) for key, value in series.labels]) <= SHORT_LABELS
        folders = _short_folders(series) if is_short and not series.dropped else series.folders
        time_nanos, digest = self.identity
        return f"{folders}/{_day(time_nanos // DAY_NANOS)}/{time_nanos}-{digest}{BLOB_SUFFIX}"

    @classmethod
    def parse(cls, text: str) -> BlobName | None:
        """Return the name that has this text; None if no name has."""
        match = _NAME.fullmatch(text)
        if match is None or not -(1 << 63) <= int(match["time_nanos"]) < 1 << 63:
            return None
        try:
            labels_text = match["labels"].rstrip("/").replace("/", ",")
            series = Series.parse(match["service"], match["type"], labels_text)
        except LabelsInvalid:
            return None
        name = cls(series, Identity(int(match["time_nanos"]), match["digest"]))
        return name if str(name) == text else None


@lru_cache(maxsize=1 << 14)
def _short_folders(series: Series) -> str:
    return series.folders


@lru_cache(maxsize=1 << 10)
def _day(number: int) -> str:
    return f"{_EPOCH + timedelta(days=number):%Y-%m-%d}"


def inputs_name(blob: str) -> str:
    """Return the name of the .inputs of a combined blob, given the blob's."""
    return blob.removesuffix(BLOB_SUFFIX) + INPUTS_SUFFIX
