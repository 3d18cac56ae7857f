"""Request labels: labels of samples that number requests and events; mypyc compiles this module.

Tracers put the ids of spans on samples. Hardly any two samples are the same then, so profiles don't add up: a
merge is as long as its profiles together. No compiler reads labels. So they are left out, after those samples
were chosen that are of the requests that somebody asks for.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.vecs import vec
from mypy_extensions import i64, u8

from pprof_merge.columns.tables import Table
from pprof_merge.columns.vectors import wrapped, zeros
from pprof_merge.profile.columns import ProfileColumns

# Of Datadog's tracers, of Pyroscope's for OpenTelemetry, and the names that programs give their own. What is
# of a route, such as `trace endpoint` and `span_name`, isn't here: of those there are few.
REQUEST_LABELS: Final[frozenset[bytes]] = frozenset(
    {
        b"end_timestamp_ns",
        b"local root span id",
        b"local_root_span_id",
        b"profile_id",
        b"request_id",
        b"span id",
        b"span.id",
        b"span_id",
        b"trace id",
        b"trace.id",
        b"trace_id",
    }
)
# OpenTelemetry's eBPF profiler puts it before the labels that it reads from a Go program.
_OF_PROGRAM: Final[bytes] = b"process.context.label."
_OF_TRACES: Final[frozenset[bytes]] = frozenset({b"trace id", b"trace.id", b"trace_id"})
# Pyroscope's clients have the id of the local root span as `profile_id`. Such a span has the samples of all
# spans below it in its process.
_OF_SPANS: Final[frozenset[bytes]] = frozenset(
    {b"local root span id", b"local_root_span_id", b"profile_id", b"span id", b"span.id", b"span_id"}
)
# What a label has the id of.
OF_TRACE: Final[i64] = 1
OF_SPAN: Final[i64] = 2
_SEEN: Final[i64] = 4
_DIGITS_OF_64: Final = 16


class RequestIds(NamedTuple):
    """The traces and the spans that samples are wanted of, by their ids in lower-case hex; none for any.

    The id of a trace has 32 digits, that of a span 16.
    """

    traces: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()


EVERY_REQUEST: Final = RequestIds()


def is_request_label(key: bytes) -> bool:
    """Return whether a label with this key numbers requests or events."""
    return key.removeprefix(_OF_PROGRAM) in REQUEST_LABELS


def keep_requests(profile: ProfileColumns, ids: RequestIds) -> None:
    """Take the samples out of a profile that was just read that aren't of these traces and of these spans.

    A label may have an id as hex, in either case, or as Datadog's tracers write it: the last 64 bits, as a
    number or in decimal digits.
    """
    needed: i64 = (OF_TRACE if ids.traces else i64(0)) | (OF_SPAN if ids.spans else i64(0))
    texts = written_forms(ids.traces), written_forms(ids.spans)
    numbers = {number_of(each) for each in ids.traces}, {number_of(each) for each in ids.spans}
    kinds = vec[u8]([u8(0)] * profile.n_strings)  # of each key: what it has the id of, once it was looked at
    said = vec[u8]([u8(0)] * profile.n_strings)  # of each text: what it is a wanted id of, likewise
    labels, values, n_types = profile.labels, profile.values, profile.n_types
    frame_ends, label_ends = profile.frame_ends[:], profile.label_ends[:]
    profile.n_frames = profile.n_labels = 0
    kept: i64 = 0
    for row in range(profile.n_samples):
        found: i64 = 0
        for i in range(label_ends[row], label_ends[row + 1]):
            key: i64 = labels[4 * i]
            text: i64 = labels[4 * i + 1]
            if kinds[key] == 0:
                kinds[key] = u8(_SEEN | kind_of_key(profile.string(key)))
            kind: i64 = i64(kinds[key]) & needed
            if kind != 0 and text < 0:
                of_trace, of_span = numbers
                number = int(labels[4 * i + 2])
                is_trace: i64 = OF_TRACE if number in of_trace else i64(0)
                is_span: i64 = OF_SPAN if number in of_span else i64(0)
                found |= kind & (is_trace | is_span)
            elif kind != 0:
                if said[text] == 0:
                    trace_texts, span_texts = texts
                    lower = profile.string(text).lower()
                    is_trace = OF_TRACE if lower in trace_texts else i64(0)
                    is_span = OF_SPAN if lower in span_texts else i64(0)
                    said[text] = u8(_SEEN | is_trace | is_span)
                found |= kind & i64(said[text])
        if found == needed:
            for k in range(n_types):
                values[kept * n_types + k] = values[row * n_types + k]
            kept += 1
            move(profile, (frame_ends[row], frame_ends[row + 1]), (label_ends[row], label_ends[row + 1]))
            profile.frame_ends[kept], profile.label_ends[kept] = profile.n_frames, profile.n_labels
    profile.n_samples = kept
    forget_unused(profile)


def kind_of_key(key: bytes) -> i64:
    """Return what labels with a key have the id of: OF_TRACE, OF_SPAN, or 0 for neither."""
    key = key.removeprefix(_OF_PROGRAM)
    return OF_TRACE if key in _OF_TRACES else OF_SPAN if key in _OF_SPANS else i64(0)


def written_forms(ids: tuple[str, ...]) -> frozenset[bytes]:
    """Return the texts that labels may have for ids: all digits, the last 16, and these in decimal."""
    forms: list[str] = []
    for each in ids:
        low = each[-_DIGITS_OF_64:]
        forms += [each, low, str(int(low, 16))]
    return frozenset([form.encode() for form in forms])


def number_of(id_: str) -> int:
    """Return the last 64 bits of an id as a label has them, with a sign."""
    number = int(id_[-_DIGITS_OF_64:], 16)
    return number - (1 << 64) if number >> 63 else number


def drop_request_labels(profile: ProfileColumns) -> None:
    """Take the request labels, and the texts that only they have, out of a profile that was just read.

    Samples that become the same are added up, unless some value is below zero: which samples cancel out is
    then for the merge to say.
    """
    said = vec[u8]([u8(0)] * profile.n_strings)  # of each key: 1 if it stays, 2 if not
    any_dropped = False
    labels = profile.labels
    for i in range(profile.n_labels):
        key: i64 = labels[4 * i]
        if said[key] == 0:
            said[key] = u8(2 if is_request_label(profile.string(key)) else 1)
            any_dropped = any_dropped or said[key] == 2
    if not any_dropped:
        return
    n: i64 = 0
    begin: i64 = 0
    for row in range(profile.n_samples):
        end: i64 = profile.label_ends[row + 1]
        for i in range(begin, end):
            if said[labels[4 * i]] == 1:
                for k in range(4):
                    labels[4 * n + k] = labels[4 * i + k]
                n += 1
        profile.label_ends[row + 1] = n
        begin = end
    profile.n_labels = n
    forget_unused(profile)
    for at in range(profile.n_samples * profile.n_types):
        if profile.values[at] < 0:
            return
    add_up(profile)


def forget_unused(profile: ProfileColumns) -> None:
    """Make those strings of a reader empty that no function, mapping or label has."""
    is_used = vec[u8]([u8(0)] * profile.n_strings)
    for row in range(profile.n_functions):
        for k in range(1, 4):
            is_used[profile.functions[5 * row + k]] = 1
    for row in range(profile.n_mappings):
        for k in range(4, 6):
            is_used[profile.mappings[10 * row + k]] = 1
    for row in range(profile.n_labels):
        is_used[profile.labels[4 * row]] = is_used[profile.labels[4 * row + 3]] = 1
        if profile.labels[4 * row + 1] >= 0:
            is_used[profile.labels[4 * row + 1]] = 1
    for string in range(profile.n_strings):
        if is_used[string] == 0:
            profile.spans[2 * string + 1] = profile.spans[2 * string]


def add_up(profile: ProfileColumns) -> None:
    """Make one sample of those with the same stack and labels. Samples without a value are left out."""
    n, n_types, values = profile.n_samples, profile.n_types, profile.values
    numbers = numbers_of(profile)
    kept: i64 = 0
    profile.n_frames = profile.n_labels = 0
    frame_ends, label_ends = profile.frame_ends[:], profile.label_ends[:]
    for row in range(n):
        if numbers[row] >= 0:
            at: i64 = numbers[row] * n_types
            is_new = numbers[row] == kept
            for k in range(n_types):
                before: i64 = i64(0) if is_new else values[at + k]
                values[at + k] = wrapped(before + values[row * n_types + k])
            if is_new:
                kept += 1
                labels = label_ends[row], label_ends[row + 1]
                move(profile, (frame_ends[row], frame_ends[row + 1]), labels)
                profile.frame_ends[kept], profile.label_ends[kept] = profile.n_frames, profile.n_labels
    profile.n_samples = kept


def numbers_of(profile: ProfileColumns) -> vec[i64]:
    """Return for each sample the number of its stack and labels, by first appearance; -1 without a value."""
    n, n_types = profile.n_samples, profile.n_types
    frames, labels, frame_ends, label_ends = (
        profile.frames,
        profile.labels,
        profile.frame_ends,
        profile.label_ends,
    )
    table, words, numbers = Table(), zeros(longest(profile)), zeros(n)
    table.make_room(n, n + profile.n_frames + 4 * profile.n_labels)
    for row in range(n):
        any_value: i64 = 0
        for k in range(n_types):
            any_value |= profile.values[row * n_types + k]
        if any_value == 0:
            numbers[row] = -1
            continue
        words[0] = frame_ends[row + 1] - frame_ends[row]
        size: i64 = 1
        for i in range(frame_ends[row], frame_ends[row + 1]):
            words[size] = i64(frames[i])
            size += 1
        for i in range(4 * label_ends[row], 4 * label_ends[row + 1]):
            words[size] = labels[i]
            size += 1
        numbers[row] = table.known(words, 0, size)
    return numbers


def move(profile: ProfileColumns, frames: tuple[i64, i64], labels: tuple[i64, i64]) -> None:
    """Move the frames and labels between two indexes, the second left out, to the end of the kept ones."""
    for i in range(frames[0], frames[1]):
        profile.frames[profile.n_frames] = profile.frames[i]
        profile.n_frames += 1
    for i in range(4 * labels[0], 4 * labels[1]):
        profile.labels[4 * profile.n_labels + i - 4 * labels[0]] = profile.labels[i]
    profile.n_labels += labels[1] - labels[0]


def longest(profile: ProfileColumns) -> i64:
    """Return how many words a sample has at most: a count, its frames, and four for each label."""
    most: i64 = 0
    for row in range(profile.n_samples):
        of_labels: i64 = 4 * (profile.label_ends[row + 1] - profile.label_ends[row])
        most = max(most, profile.frame_ends[row + 1] - profile.frame_ends[row] + of_labels)
    return most + 1
