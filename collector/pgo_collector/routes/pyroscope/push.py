"""The body of a Push: the message push.v1.PushRequest, as protobuf or JSON, taken apart in a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from pprof_merge import Limits, inflate

from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.errors import LabelsInvalid, PushInvalid
from pgo_collector.routes.push.naming import Sender, Target
from pgo_collector.routes.pyroscope.push_pb2 import PushRequest, RawProfileSeries

_NAME = "a push.v1.PushRequest"
# What json and json_format raise for what isn't the message.
NOT_JSON = (ValueError, TypeError, AttributeError, RecursionError, SystemError, json_format.Error)


class PushOptions(NamedTuple):
    """How to read a Push: whether it is JSON, how many profiles it may have, and who sent it."""

    is_json: bool
    most_profiles: int
    sender: Sender


def unpack_push(options: PushOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles of a Push, gzip or not. Raises PushInvalid or ProfileError."""
    message = inflate(content, limits)
    request = _from_json(message, options) if options.is_json else _from_protobuf(message)
    return unpack_series(
        request.series, options.most_profiles, lambda series: _target(series, options.sender)
    )


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
    _check_count(len(every), most)
    _check_count(sum(len(series.samples) for series in every), most)
    return [profile for series in every for profile in _profiles(series, target_of)]


def _profiles(series: _Series, target_of: Callable[[_Series], Target]) -> Iterator[Unpacked]:
    try:
        target = target_of(series)
    except LabelsInvalid as error:
        yield error.with_traceback(None)
        return
    for sample in series.samples:
        yield PushedProfile(sample.raw_profile, target.series)


def _target(series: RawProfileSeries, sender: Sender) -> Target:
    """Return where a series goes. Raises LabelsInvalid."""
    labels = [(label.name, label.value) for label in series.labels]
    check_labels(labels)
    return Target.of(labels, sender)


def check_labels(labels: Sequence[tuple[str, str]]) -> None:
    """Raise LabelsInvalid if a label comes twice, or if none is the name of the profile."""
    names = {name for name, _ in labels}
    if len(names) < len(labels):
        raise LabelsInvalid("a label comes twice: send each once")
    if "__name__" not in names:
        raise LabelsInvalid("the label __name__ is missing, which says what the profile measures")


def _from_protobuf(message: bytes) -> PushRequest:
    try:
        return PushRequest.FromString(message)
    except DecodeError as error:
        raise PushInvalid(f"the body isn't {_NAME}: {error}") from error


def _from_json(message: bytes, options: PushOptions) -> PushRequest:
    """Return the request; its lists are counted before they are converted, which takes long.

    protobuf raises SystemError for the name of a field that isn't UTF-8.
    """
    try:
        parsed = json.loads(message)
        every = parsed.get("series") or []
        _check_count(len(every), options.most_profiles)
        _check_count(sum(len(series.get("samples") or []) for series in every), options.most_profiles)
        return json_format.ParseDict(parsed, PushRequest(), ignore_unknown_fields=True)
    except NOT_JSON as error:
        reason = str(error).encode(errors="backslashreplace").decode()  # it may quote half a surrogate pair
        raise PushInvalid(f"the body isn't {_NAME} as JSON: {reason}") from error


def _check_count(count: int, most: int) -> None:
    """Raise PushInvalid if a request has more profiles or series than it may."""
    if count > most:
        raise PushInvalid(
            f"the request has {count:,} profiles or series; the limit is {most:,} (PGOF_PUSH_PROFILES)"
        )
