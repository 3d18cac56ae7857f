"""The body of an upload: a form with an event and pprof profiles, taken apart in a worker.

Go's profiles are stored as they came. Profiles of other languages have up to twenty sample types; each
becomes several profiles, of one type each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from pprof_merge import LimitExceeded, Limits, ProfileError, decode, encode, inflate
from pprof_merge.analysis import split_types
from pprof_merge.merging import REQUEST_LABELS

from pgo_collector.engine.pushes import PushedProfile, Unpacked
from pgo_collector.errors import LabelsInvalid, NotPprof, ParameterInvalid, PushInvalid
from pgo_collector.http.forms import FormPart, form_parts
from pgo_collector.http.selections import parse_time
from pgo_collector.readers.compression import unframed
from pgo_collector.readers.json_text import read_json
from pgo_collector.routes.datadog.naming import ProfileName, go_profile, labels_of, profiles_in
from pgo_collector.routes.push.naming import Sender, Target

_MOST_PROFILES = "PGOF_MAX_INFLATED_BYTES or PGOF_PUSH_PROFILES"
_EVENT = "event"
# Tags of an upload: some become labels, of which there may be 30.
_MOST_TAGS = 200
# Values of the event's JSON, with the commas in the tags.
_MOST_IN_EVENT = 10_000
# Values of a profile that is split by type: each takes its eight bytes several times.
_MOST_VALUES = 1_500_000
_PPROF = "pprof"
_JFR = "jfr"
# Files beside profiles, which describe them, and may come without them.
_NO_PROFILES = frozenset({"json", "txt"})
# Labels of samples that number events, threads and tasks: with them hardly any two samples could be merged.
_NUMBERING = REQUEST_LABELS | {b"os thread id", b"task id", b"thread id", b"thread native id"}


class UploadOptions(NamedTuple):
    """Headers of an upload: the form's boundary, the tags that an agent added, and who sent it.

    There may be `most_profiles` profiles, also after those of many sample types are split.
    """

    boundary: str
    most_profiles: int
    agent_tags: str
    sender: Sender


class _Event(NamedTuple):
    """The event of an upload: where its profiles go, and when they begin, in ns since 1970."""

    target: Target
    start_nanos: int | None


class _File(NamedTuple):
    """A part of a form: its name, the name without its suffix, the suffix, which is its kind, its content."""

    name: str
    stem: str
    kind: str
    content: bytes


def unpack_upload(options: UploadOptions, content: bytes, limits: Limits) -> list[Unpacked]:
    """Return the profiles of an upload. Beside them, parts that are neither pprof nor JFR are ignored.

    Raises PushInvalid if there is no form with an event, or too much in it, NotPprof if no part is a profile,
    LabelsInvalid and LimitExceeded.
    """
    most = options.most_profiles
    # The event, a file that describes it, and the end of the form are counted, too.
    parts = form_parts(inflate(content, limits), options.boundary, most + 3, _MOST_PROFILES)
    event, files = _event(parts, options), [*_files(parts)]
    if files and all(file.kind not in {_PPROF, _JFR} for file in files):
        names = ", ".join(file.name[:50] for file in files[:5])
        raise NotPprof(
            f"no part is a profile ({names}): only pprof can be read, in parts named NAME.{_PPROF}"
        )
    profiles = [*islice(_profiles(files, event, limits), most + 1)]
    if len(profiles) > most:
        raise PushInvalid(f"the form has more than {most} profiles ({_MOST_PROFILES})")
    return profiles


def _files(parts: dict[str, FormPart]) -> Iterator[_File]:
    """Yield the parts of a form that may be profiles. Java's tracer has `main.jfr` in the part `main`."""
    for name, (content, file_name) in parts.items():
        full = file_name if file_name.endswith((f".{_PPROF}", f".{_JFR}")) else name
        stem, _, kind = full.rpartition(".")
        if name != _EVENT and kind not in _NO_PROFILES:
            yield _File(full, stem, kind, content)


def _profiles(files: Sequence[_File], event: _Event, limits: Limits) -> Iterator[Unpacked]:
    """Yield the profiles in the files of a form. Raises LimitExceeded if all together are too large."""
    # For what came, and for what is made of it: each type of a profile may have nearly all of it.
    room = left = limits.inflated_bytes
    for name, stem, kind, part in files:
        if kind == _JFR:
            yield NotPprof(f"{name[:50]}: the profile is in the format jfr; only pprof can be read")
        if kind != _PPROF or not part:
            continue
        try:
            bare = unframed(part, limits._replace(inflated_bytes=room))
            named = go_profile(stem)
            if named is not None:
                yield _pushed(bare, named, event)
            else:
                bare = inflate(bare, limits._replace(inflated_bytes=room))
                for split in _split(bare, event, limits):
                    left -= len(split.content)
                    limits.check("inflated_bytes", limits.inflated_bytes - left)
                    yield split
        except LimitExceeded as error:
            # All together are too large, or this one is.
            raise LimitExceeded(error.limit, getattr(limits, error.limit), error.where) from error
        except ProfileError as error:
            yield error.with_traceback(None)
        else:
            room -= len(bare)


def _event(parts: dict[str, FormPart], options: UploadOptions) -> _Event:
    """Return what the part `event` says. Raises PushInvalid and LabelsInvalid."""
    if _EVENT not in parts:
        raise PushInvalid("the form has no part named event")
    try:
        event = read_json(parts[_EVENT].content, _MOST_IN_EVENT)
        tags, start = (event.get(key) or "" for key in ("tags_profiler", "start"))
        tags.encode(), start.encode()  # JSON may have half a surrogate pair
    except (ValueError, AttributeError, RecursionError) as error:
        raise PushInvalid("event: this isn't JSON with the strings tags_profiler and start") from error
    if tags.count(",") > _MOST_TAGS:
        raise LabelsInvalid(f"event: there are more than {_MOST_TAGS} tags")
    # What the tags say must not pass for what the profile is.
    labels = {
        key: value for key, value in labels_of(tags, options.agent_tags).items() if not key.startswith("__")
    }
    target, start_nanos = Target.of(labels.items(), options.sender), None
    with suppress(ParameterInvalid):
        start_nanos = parse_time(start, "start")
    return _Event(target, start_nanos)


def _split(bare: bytes, event: _Event, limits: Limits) -> Iterator[PushedProfile]:
    """Yield the profiles of one type each that a profile holds. Raises ProfileError and PushInvalid."""
    profile = decode(bare, limits)
    if (count := profile.samples.values.size) > _MOST_VALUES:
        raise PushInvalid(f"a profile with several types has {count:,} values; the limit is {_MOST_VALUES:,}")
    columns = profiles_in(profile.header)
    for named, part in zip(columns, split_types(profile, columns.values(), _NUMBERING), strict=True):
        yield _pushed(encode(part), named, event)


def _pushed(content: bytes, named: ProfileName, event: _Event) -> PushedProfile:
    target = replace(event.target, name=named.name, is_delta=named.is_delta)
    return PushedProfile(content, target.series, event.start_nanos)
