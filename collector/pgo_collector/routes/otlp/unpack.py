"""The body of an export: the message ExportProfilesServiceRequest, taken apart and converted in a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from pprof_merge import Header, LimitExceeded, Limits, MalformedProfile, inflate
from pprof_merge.codec import counts_in, messages_in

from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.engine.start_lines import Tables
from pgo_collector.errors import LabelsInvalid, NotPprof, PushInvalid, Refusal
from pgo_collector.model.profile_types import START_LINES
from pgo_collector.model.series import Labels, Series, labels_of_pairs
from pgo_collector.routes.otlp import export_pb2 as otlp
from pgo_collector.routes.otlp.convert import Converted, Origin, Reading, Room, to_pprof
from pgo_collector.routes.otlp.dictionary import Dictionary, Value, text_of
from pgo_collector.routes.otlp.joining import Known
from pgo_collector.routes.otlp.naming import is_named, name_of, target_of
from pgo_collector.routes.otlp.versions import READ, check_tables, has_samples, is_before_1_10
from pgo_collector.routes.push.connect import NOT_JSON, read_json
from pgo_collector.routes.push.naming import Sender, Target

# Attributes of all resources, or of all scopes.
_MOST_ATTRIBUTES = 100_000
# The fields of a dictionary, and the limits on its tables.
_TABLES = (
    (1, "mappings"), (2, "locations"), (3, "functions"), (5, "strings"), (6, "strings"), (7, "samples"),
)  # fmt: skip
# How much longer a request is as JSON.
_JSON_TIMES = 4
_NAME = "an ExportProfilesServiceRequest"
_PPROF = "pprof"
# One more than other clients may send.
_MOST_LABELS = 31
# As many attributes as can become labels or name the service, and some, which labels may have in common.
_MOST_NAMED = 40


class ExportOptions(NamedTuple):
    """How to read an export: whether it is JSON, how many profiles it may have, and who sent it.

    `labels` and `sample_labels` are the patterns of the attributes that become labels, and `start_lines` are
    the tables of the start lines that are known of builds.
    """

    is_json: bool
    most_profiles: int
    labels: frozenset[str]
    sample_labels: frozenset[str]
    sender: Sender
    start_lines: Tables


def unpack_export(options: ExportOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles of an export, gzip or not, as pprof. Raises PushInvalid or ProfileError."""
    message = inflate(content, limits)
    request = _from_json(message, options) if options.is_json else _from_protobuf(message, options, limits)
    _check_count(len(request.resource_profiles), options)
    _check_count(sum(len(resource.scope_profiles) for resource in request.resource_profiles), options)
    _check_count(_count(request), options)
    is_before = not options.is_json and is_before_1_10(message, request)
    size = len(message) // (_JSON_TIMES if options.is_json else 1)
    reading = Reading(is_before, options.sample_labels, Known(options.start_lines))
    return [*_profiles(request, size, reading, options, limits)]


def _profiles(
    request: otlp.ExportRequest, size: int, reading: Reading, options: ExportOptions, limits: Limits
) -> Iterator[Unpacked]:
    """Yield each profile, or why it is refused: from the one on with which all together are too large, too.

    `size` is that of the request, in bytes. Raises LimitExceeded if the dictionary is too large.
    """
    dictionary, room = Dictionary(request.dictionary, limits), Room(limits, size)
    left = _count(request)
    for resource in request.resource_profiles:
        origins = _Origins(resource, dictionary, options)
        for scope in resource.scope_profiles:
            found = origins.of(scope)
            if isinstance(found, Refusal):
                yield from [found] * len(scope.profiles)
                left -= len(scope.profiles)
                continue
            origin, target = found
            for profile in scope.profiles:
                try:
                    made = _payload(profile, room) or to_pprof(profile, dictionary, origin, reading, room)
                    placed = replace(target, labels=_labels(target.labels, made.joined_by))
                except Refusal as error:
                    yield error.with_traceback(None)
                except LimitExceeded as error:
                    yield from [error.with_traceback(None)] * left
                    return
                else:
                    yield PushedProfile(made.content, partial(_place, placed))
                left -= 1


class _Origins:
    """The origins and targets of a resource's profiles: what its scopes share is worked out once."""

    def __init__(
        self, resource: otlp.ResourceProfiles, dictionary: Dictionary, options: ExportOptions
    ) -> None:
        self._dictionary = dictionary
        self._options = options
        self._of_resource = self._read(resource.resource.attributes)
        # By the texts of a scope's attributes.
        self._targets: dict[tuple[tuple[str, str], ...], Target | Refusal] = {}

    def of(self, scope: otlp.ScopeProfiles) -> tuple[Origin, Target] | Refusal:
        """Return where the profiles of a scope come from and go to, or why they are refused."""
        of_resource, of_scope = self._of_resource, self._read(scope.scope.attributes)
        if isinstance(of_resource, Refusal):
            return of_resource
        if isinstance(of_scope, Refusal):
            return of_scope
        key = tuple((name, text_of(value)) for name, value in of_scope.items())
        if key not in self._targets:
            self._targets[key] = self._target({**of_scope, **of_resource})
        target = self._targets[key]
        return target if isinstance(target, Refusal) else (Origin(target.service, of_scope), target)

    def _read(self, pairs: Iterable[otlp.KeyValue]) -> dict[str, Value] | Refusal:
        try:
            found = self._dictionary.key_values(pairs, partial(is_named, self._options.labels))
        except Refusal as error:
            return error.with_traceback(None)
        if len(found) > _MOST_NAMED:
            return LabelsInvalid(
                f"{len(found)} attributes of a resource or scope become labels; the limit is 30"
            )
        return found

    def _target(self, attributes: Mapping[str, Value]) -> Target | Refusal:
        try:
            return target_of(attributes, self._options.labels, self._options.sender)
        except LabelsInvalid as error:
            return error.with_traceback(None)


def _place(target: Target, header: Header, has_start_lines: bool) -> Series:
    return replace(target, name=name_of(header)).series(header, has_start_lines)


def _labels(labels: Labels, joined_by: str) -> Labels:
    """Return the labels of a profile; one whose functions got start lines is marked. Raises LabelsInvalid."""
    return labels_of_pairs([*labels, (START_LINES, joined_by)], _MOST_LABELS) if joined_by else labels


def _payload(profile: otlp.Profile, room: Room) -> Converted | None:
    """Return the original of a profile if it is pprof; None if there is none. Raises NotPprof."""
    if not profile.original_payload:
        return None
    if profile.original_payload_format == _PPROF:
        room.take("inflated_bytes", len(profile.original_payload))
        return Converted(profile.original_payload)
    if not profile.samples:
        known = profile.original_payload_format[:50]
        raise NotPprof(f"the profile is only there in the format {known!r}: send its samples, or pprof")
    return None


def _count(request: otlp.ExportRequest) -> int:
    return sum(
        len(scope.profiles) for resource in request.resource_profiles for scope in resource.scope_profiles
    )


def _from_protobuf(message: bytes, options: ExportOptions, limits: Limits) -> otlp.ExportRequest:
    """Return the request. What it has is counted before: two bytes may become an object of a hundred."""
    try:
        _check_messages(message, options, limits)
        return otlp.ExportRequest.FromString(message)
    except (DecodeError, MalformedProfile) as error:
        raise PushInvalid(f"the body isn't {_NAME}: {error}") from error


def _check_messages(message: bytes, options: ExportOptions, limits: Limits) -> None:
    """Raise PushInvalid, LimitExceeded, or MalformedProfile if the message isn't protobuf."""

    def inside(spans: Sequence[tuple[int, int]], number: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for begin, end in spans:
            found += messages_in(message, begin, end, number, options.most_profiles + 1 - len(found))
            _check_count(len(found), options)
        return found

    def check_attributes(spans: Sequence[tuple[int, int]], number: int) -> None:
        count = sum(counts_in(message, *span)[number] for span in spans)
        if count > _MOST_ATTRIBUTES:
            raise PushInvalid(
                f"resources or scopes have {count:,} attributes; the limit is {_MOST_ATTRIBUTES:,}"
            )

    whole = [(0, len(message))]
    resources = inside(whole, 1)
    check_attributes(inside(resources, 1), 1)
    scopes = inside(resources, 2)
    check_attributes(inside(scopes, 1), 3)
    limits.check("samples", sum(counts_in(message, *profile)[2] for profile in inside(scopes, 2)))
    for dictionary in inside(whole, 2):
        counts = counts_in(message, *dictionary)
        for number, limit in _TABLES:
            limits.check(limit, counts[number])


def _from_json(message: bytes, options: ExportOptions) -> otlp.ExportRequest:
    """Return the request. Its fields have names, which are those of 1.10 in 1.8 and 1.9, too.

    Its lists are counted before they are converted, which takes long. protobuf raises SystemError for the
    name of a field that isn't UTF-8.
    """
    try:
        parsed = read_json(message)
        resources = [*_listed(parsed, "resourceProfiles", "resource_profiles")]
        _check_count(len(resources), options)
        scopes = [
            each for resource in resources for each in _listed(resource, "scopeProfiles", "scope_profiles")
        ]
        _check_count(len(scopes), options)
        profiles = [profile for scope in scopes for profile in _listed(scope, "profiles")]
        _check_count(len(profiles), options)
        if any("sample" in profile for profile in profiles):
            raise PushInvalid(f"this is OTLP of version 1.7 or before; {READ}")
        request = json_format.ParseDict(parsed, otlp.ExportRequest(), ignore_unknown_fields=True)
    except NOT_JSON as error:
        reason = str(error).encode(errors="backslashreplace").decode()  # it may quote half a surrogate pair
        raise PushInvalid(f"the body isn't {_NAME} as JSON: {reason}") from error
    check_tables(request, has_samples=any(map(has_samples, request.resource_profiles)))
    return request


def _listed(message: dict[str, Any], *names: str) -> Iterator[dict[str, Any]]:
    """Yield the messages in the list that has one of these names."""
    for name in names:
        yield from message.get(name) or ()


def _check_count(count: int, options: ExportOptions) -> None:
    if count > options.most_profiles:
        raise PushInvalid(
            f"the request has {count:,} resources, scopes or profiles; the limit is"
            f" {options.most_profiles:,} (PGOF_OTLP_PROFILES)"
        )
