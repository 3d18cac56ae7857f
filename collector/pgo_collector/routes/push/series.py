"""Pushed series: the profiles of a request that sends many, each series with its labels.

The messages of Pyroscope's Push and Parca's WriteRaw have the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from pprof_merge.codec import counts_in, messages_in

from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.errors import LabelsInvalid, PushInvalid
from pgo_collector.routes.push.naming import Target

# Labels of a series as it is sent: some are left out.
_MOST_SENT = 100
NO_SERIES = "the request has no series, and nothing else is known of it"


class _Sample(Protocol):
    @property
    def raw_profile(self) -> bytes: ...


class _Sampled(Protocol):
    @property
    def samples(self) -> Sequence[_Sample]: ...


_Series = TypeVar("_Series", bound=_Sampled)


def unpack_series(
    every: Sequence[_Series], most: int, target_of: Callable[[_Series], Target]
) -> list[Unpacked]:
    """Return the profiles of all series in a request; of one whose labels are wrong, what is wrong.

    `target_of` returns where the profiles of a series go, or raises LabelsInvalid. Raises PushInvalid if
    there are more than `most` series or profiles.
    """
    check_count(len(every), most)
    check_count(sum(len(series.samples) for series in every), most)
    return [profile for series in every for profile in _profiles(series, target_of)]


def _profiles(series: _Series, target_of: Callable[[_Series], Target]) -> Iterator[Unpacked]:
    try:
        target = target_of(series)
    except LabelsInvalid as error:
        yield error.with_traceback(None)
        return
    for sample in series.samples:
        yield PushedProfile(sample.raw_profile, target.series)


def check_series(message: bytes, number: int, most: int, *, in_set: bool = False) -> None:
    """Count what a message has before it is parsed: two bytes may become an object of a hundred.

    Its series are in the field `number`; their labels are in field 1, or `in_set` in field 1 of it, and their
    profiles in field 2. Raises PushInvalid, also for a message that has something, but no series,
    LabelsInvalid, and MalformedProfile if it isn't protobuf.
    """
    every = messages_in(message, 0, len(message), number, most + 1)
    if message and not every:
        raise PushInvalid(NO_SERIES)
    check_count(len(every), most)
    count = 0
    for begin, end in every:
        counts = counts_in(message, begin, end)
        count += counts[2]
        labels = counts[1]
        if in_set:
            check_label_count(labels)
            sets = messages_in(message, begin, end, 1, labels)
            labels = sum(counts_in(message, *span)[1] for span in sets)
        check_label_count(labels)
    check_count(count, most)


def check_label_count(count: int) -> None:
    """Raise LabelsInvalid if a series has more labels than a sender has any use for."""
    if count > _MOST_SENT:
        raise LabelsInvalid(
            f"a series has {count:,} labels; the limit is 30, and {_MOST_SENT} with those left out"
        )


def check_labels(labels: Sequence[tuple[str, str]]) -> None:
    """Raise LabelsInvalid if a label comes twice, or if none is the name of the profile."""
    names = {name for name, _ in labels}
    if len(names) < len(labels):
        raise LabelsInvalid("a label comes twice: send each once")
    if "__name__" not in names:
        raise LabelsInvalid("the label __name__ is missing, which says what the profile measures")


def check_count(count: int, most: int) -> None:
    """Raise PushInvalid if a request has more profiles or series than it may."""
    if count > most:
        raise PushInvalid(
            f"the request has {count:,} profiles or series; the limit is {most:,}"
            " (PGOF_MAX_INFLATED_BYTES or PGOF_PUSH_PROFILES)"
        )
