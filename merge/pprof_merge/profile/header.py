"""The header of a profile: its fields that are not tables."""

from typing import NamedTuple

# Messages show at most this many bytes of a type or unit: a hostile profile may have long ones.
_LONGEST_PART = 100


class ValueType(NamedTuple):
    """Meaning of a value (`cpu`), and its unit (`nanoseconds`)."""

    type: bytes
    unit: bytes

    def __str__(self) -> str:
        """Return `type/unit` for messages; long parts are cut."""
        return "/".join(part[:_LONGEST_PART].decode(errors="replace") for part in self)


class Header(NamedTuple):
    """The fields of a profile that are not tables. Times are in ns, `period` is in units of `period_type`."""

    sample_types: tuple[ValueType, ...]
    period_type: ValueType = ValueType(b"", b"")
    period: int = 0
    time_nanos: int = 0
    duration_nanos: int = 0
    comments: tuple[bytes, ...] = ()
    default_sample_type: bytes = b""
    doc_url: bytes = b""
    drop_frames: bytes = b""
    keep_frames: bytes = b""
