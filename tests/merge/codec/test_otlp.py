"""Profiles of OpenTelemetry's wire, in forms that its own classes don't write."""

from __future__ import annotations

import pytest
from pprof_merge import LimitExceeded, Limits, MalformedProfile
from pprof_merge.codec import Conversion, DictionaryTables, wires_of_samples, without
from pprof_proto.profile_pb2 import Profile

from tests.oracle.wire import number, record

# The strings "", "a" and "b", a function, a location and stacks of it; each table has an entry 0.
_FUNCTION = number(1, 1) + number(3, 2)
_LOCATION = number(2, 64) + record(3, number(1, 1) + number(2, 7))
_TABLES = (
    b"".join(record(5, text) for text in (b"", b"a", b"b"))
    + record(3, b"")
    + record(3, _FUNCTION)
    + record(2, b"")
    + record(2, _LOCATION)
    + record(7, b"")
)


def conversion_of(profile: bytes, stack: bytes, limits: Limits, links: bytes = b"") -> Conversion:
    """Return what converts a profile whose stack 1 is given, and the records of links."""
    data = profile + _TABLES + record(7, stack) + links
    tables = DictionaryTables(data, [(len(profile), len(data))], limits)
    return Conversion(tables, limits, lambda _: None, lambda _: 1, lambda _: (b"", -1, -1, -1, -1))


def converted(profile: bytes, stack: bytes, *, before: bool = False, links: bytes = b"") -> bytes:
    """Return the records of a profile whose stack 1 is given, and the records of links."""
    conversion = conversion_of(profile, stack, Limits(), links)
    conversion.read_samples(0, len(profile), before)
    conversion.begin({})
    conversion.write_samples(0)
    return conversion.written()


def values_of(records: bytes) -> tuple[list[list[int]], list[int]]:
    """Return the values of each sample, and how many locations each has."""
    samples = Profile.FromString(records).sample
    return [[*sample.value] for sample in samples], [len(sample.location_id) for sample in samples]


@pytest.mark.parametrize(
    "stack", [record(1, b"\x01\x01"), number(1, 1) * 2, record(1, b"\x01") + number(1, 1)]
)
@pytest.mark.parametrize("values", [record(4, b"\x02\x03"), number(4, 2) + number(4, 3)])
def test_repeated_numbers_may_be_packed_or_not(stack: bytes, values: bytes) -> None:
    sample = record(2, number(1, 1) + values + b"\x78\0")  # and a field that nobody knows
    assert values_of(converted(sample * 2, stack)) == ([[10]], [2])


def test_the_first_location_is_read_if_a_sender_has_one_there() -> None:
    """No sender should: the entry 0 stands for "not set"."""
    sample = record(2, number(1, 1) + number(4, 2))
    texts = b"".join(record(5, text) for text in (b"", b"a", b"b"))
    stacks = record(7, b"") + record(7, record(1, b"\x00\x01\x00"))
    counts = []
    for first in (_LOCATION, number(2, 64), number(1, 0), b""):
        data = (
            sample
            + texts
            + b"".join((record(3, b""), record(3, _FUNCTION), record(2, first), record(2, _LOCATION), stacks))
        )
        tables = DictionaryTables(data, [(len(sample), len(data))], Limits())
        conversion = Conversion(
            tables, Limits(), lambda _: None, lambda _: 1, lambda _: (b"", -1, -1, -1, -1)
        )
        conversion.read_samples(0, len(sample), False)
        conversion.begin({})
        conversion.write_samples(0)
        counts.append(values_of(conversion.written()))
    assert counts == [([[2]], [3]), ([[2]], [3]), ([[2]], [1]), ([[2]], [1])]


def test_a_sample_of_1_9_has_its_values_elsewhere() -> None:
    sample = record(2, number(1, 1) + record(2, b"\x05") + number(4, 0))
    assert values_of(converted(sample, record(1, b"\x01"), before=True)) == ([[5]], [1])


_TRACE, _SPAN = bytes(range(16)), bytes(range(1, 9))
_LINKED = {"trace_id": _TRACE.hex(), "span_id": _SPAN.hex()}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    ("link", "labels"),
    [
        (record(1, _TRACE) + record(2, _SPAN), _LINKED),
        (record(2, _SPAN) + number(9, 1) + record(1, _TRACE) + record(3, b"x"), _LINKED),
        (record(1, _TRACE), {"trace_id": _LINKED["trace_id"]}),
        (record(1, _TRACE[:8]) + record(2, _SPAN), {"span_id": _LINKED["span_id"]}),
        (record(1, bytes(16)) + record(2, bytes(8)), {}),
        (b"", {}),
    ],
)
def test_a_link_becomes_labels(link: bytes, labels: dict[str, str], *, before: bool) -> None:
    """Samples with the same link are added up, and those with another are apart."""
    links = record(4, b"") + record(4, link)

    def sample(number_of_link: int, value: int) -> bytes:
        numbers = record(2, bytes([value])) if before else record(4, bytes([value]))
        return record(2, number(1, 1) + numbers + number(4 if before else 3, number_of_link))

    samples = sample(1, 5) + sample(0, 7) + sample(1, 6)
    found = Profile.FromString(converted(samples, record(1, b"\x01"), before=before, links=links))
    texts = found.string_table
    written = {
        sample.value[0]: {texts[each.key].decode(): texts[each.str].decode() for each in sample.label}
        for sample in found.sample
    }
    assert written == ({11: labels, 7: {}} if labels else {18: {}})


@pytest.mark.parametrize("link", [2, 1 << 40, -1])
def test_a_link_that_is_not_there_is_refused(link: int) -> None:
    sample = record(2, number(1, 1) + number(4, 1) + number(3, link))
    with pytest.raises(MalformedProfile, match=f"link {link} is not in the dictionary, whose table has 2"):
        converted(sample, record(1, b"\x01"), links=record(4, b"") * 2)


def test_a_link_is_read_once() -> None:
    """However many samples have it, a long one costs no more."""
    link = record(1, _TRACE) + record(9, bytes(100_000))
    samples = record(2, number(1, 1) + number(4, 1) + number(3, 1)) * 5000
    assert values_of(converted(samples, record(1, b"\x01"), links=record(4, b"") + record(4, link))) == (
        [[5000]],
        [1],
    )


def test_timestamps_count_without_values() -> None:
    sample = record(2, number(1, 1) + record(5, bytes(16)) + b"\x29" + bytes(8))
    assert values_of(converted(sample, record(1, b"\x01"))) == ([[3]], [1])


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (b"", "neither values nor timestamps"),
        (record(5, bytes(7)), "eight bytes"),
        (record(4, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01"), "63 bits"),
        (number(1, 2) + number(4, 1), "stack 2 is not in the dictionary, whose table has 2 entries"),
        (b"\x22\x05\x01", "longer than the bytes that are left"),
    ],
)
def test_a_sample_that_says_nothing_is_refused(sample: bytes, reason: str) -> None:
    with pytest.raises(MalformedProfile, match=reason):
        converted(record(2, sample), record(1, b"\x01"))


def test_what_is_read_again_and_again_is_bounded() -> None:
    """A stack of fields that nobody knows adds nothing to what is written, and takes time for each sample."""
    profile = record(2, number(1, 1) + number(4, 1))
    conversion = conversion_of(profile, record(1, b"\x01") + b"\x78\0" * 100_000, Limits())
    for _ in range(18):
        conversion.read_samples(0, len(profile), False)
    with pytest.raises(LimitExceeded, match="too often"):
        conversion.read_samples(0, len(profile), False)


def test_a_message_without_a_field_keeps_the_others() -> None:
    message = number(1, 5) + record(2, b"abc") + record(3, b"d") + record(2, b"")
    assert without(message, 0, len(message), 2) == number(1, 5) + record(3, b"d")


_TIME = b"\x29" + bytes(8)
_BEFORE, _CURRENT, _NOT_BEFORE, _NOT_CURRENT = 1, 2, 4, 8


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        # Values of 1.8, packed and not; there are three attributes and two links.
        (record(2, b"\x01"), _NOT_CURRENT),
        (number(2, 1) + number(2, 2), _NOT_CURRENT),
        (record(2, b"\x01\x02") + record(5, bytes(16)), 0),
        (number(2, 3) + _TIME, _NOT_CURRENT),
        (number(2, 1) + record(3, b"\x01"), _BEFORE | _NOT_CURRENT),
        (number(2, 1) + number(3, 1) + number(3, 2), _BEFORE | _NOT_CURRENT),
        (number(2, 1) + number(3, 2), _NOT_CURRENT),
        # Values of 1.10.
        (record(4, b"\x01"), _CURRENT | _NOT_BEFORE),
        (number(4, 1), _NOT_BEFORE),
        (number(4, 1) + number(4, 1), _CURRENT | _NOT_BEFORE),
        (number(2, 1) + number(4, 9), _NOT_BEFORE),
        (number(2, 1) + number(4, 1), 0),
        (number(2, 1) + number(2, 2) + _TIME, _NOT_BEFORE),
        (number(2, 3) + number(4, 9), _NOT_BEFORE | _NOT_CURRENT),
        (_TIME, 0),
        (b"", _NOT_BEFORE | _NOT_CURRENT),
    ],
)
def test_numbers_of_samples_tell_their_wire(sample: bytes, told: int) -> None:
    profile = number(1, 2) + record(2, sample)
    assert wires_of_samples(profile, 0, len(profile), 3, 2) == told
