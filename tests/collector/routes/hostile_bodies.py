"""Bodies of a few kilobytes that were made to cost much, for each protocol, and how it reads them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from google.protobuf import json_format
from pgo_collector.engine.pushes import Unpack
from pgo_collector.engine.start_lines import Tables
from pgo_collector.routes.datadog.upload import UploadOptions, unpack_upload
from pgo_collector.routes.otlp.export_pb2 import ExportRequest
from pgo_collector.routes.otlp.naming import patterns_of
from pgo_collector.routes.otlp.unpack import ExportOptions, unpack_export
from pgo_collector.routes.parca.parca_pb2 import WriteRawRequest
from pgo_collector.routes.parca.write_raw import WriteOptions, unpack_write_raw
from pgo_collector.routes.push.naming import Sender
from pgo_collector.routes.pyroscope.ingest import IngestOptions, unpack_ingest
from pgo_collector.routes.pyroscope.push import PushOptions, unpack_push
from pgo_collector.routes.pyroscope.push_pb2 import PushRequest
from pgo_collector.settings import Settings
from pprof_proto.profile_pb2 import Profile

from tests.collector.pushing import form
from tests.faults.stacks import profile_of

# Makes a body of a number of repetitions.
Make = Callable[[int], bytes]

_SETTINGS = Settings()
_PROFILE = profile_of("a")


class _NoTables:
    """Start lines of no build."""

    def versions(self, *_: object) -> dict[str, str]:
        """Return nothing."""
        return {}


def export_options(*, is_json: bool) -> ExportOptions:
    """Return how exports are read by default, with more labels of samples."""
    labels, sample_labels = _SETTINGS.otlp_labels, _SETTINGS.otlp_sample_labels
    kept = patterns_of(labels), patterns_of(f"{sample_labels},thread.*")
    return ExportOptions(is_json, _SETTINGS.otlp_profiles, *kept, Sender(), cast("Tables", _NoTables()))


def repeated(make: Make, size: int, small: int | None = None) -> bytes:
    """Return the body of about as many repetitions as fit in a size.

    It is smaller if its gzip would be larger than `small`, by so much.
    """
    each = max((len(make(200)) - len(make(100))) / 100, 0.5)
    count = max(int((size - len(make(1))) / each), 1)
    body = make(count)
    while len(body) > size and count > 1:
        count = int(count * 0.9)
        body = make(count)
    if small is not None and (packed := len(gzip.compress(body, 6))) > small:
        body = make(max(count * small // packed, 1))
    return body


# OTLP

Fill = Callable[[ExportRequest, int], None]


def _request() -> ExportRequest:
    request = ExportRequest()
    request.dictionary.string_table.append("")
    for table in ("mapping", "location", "function", "attribute", "stack"):
        getattr(request.dictionary, f"{table}_table").add()
    return request


def _scopes(request: ExportRequest, count: int) -> None:
    resource = request.resource_profiles.add()
    for number in range(count):
        resource.resource.attributes.add(key=f"k8s.{number}.name").value.string_value = "a"
    for _ in range(min(count, 1000)):
        resource.scope_profiles.add().profiles.add()


def _few_labels(request: ExportRequest, count: int) -> None:
    resource = request.resource_profiles.add()
    for number in range(29):
        resource.resource.attributes.add(key=f"k8s.{number}.name").value.string_value = "%" * 60
    for number in range(min(count, 1000)):
        scope = resource.scope_profiles.add()
        scope.profiles.add()
        scope.scope.attributes.add(key="host.name").value.int_value = number


def _long_label_of_scopes(request: ExportRequest, count: int) -> None:
    resource = request.resource_profiles.add()
    resource.resource.attributes.add(key="k8s.pod.name").value.string_value = "%" * 260_000
    for number in range(min(count, 999)):
        scope = resource.scope_profiles.add()
        scope.profiles.add()
        scope.scope.attributes.add(key="host.name").value.int_value = number


def _other_attributes(request: ExportRequest, count: int) -> None:
    resource = request.resource_profiles.add()
    for number in range(count):
        resource.resource.attributes.add(key=f"{number}").value.string_value = "a"
    for _ in range(min(count, 1000)):
        resource.scope_profiles.add().profiles.add()


def _long_texts(request: ExportRequest, count: int) -> None:
    request.dictionary.string_table.append("k8s." + 4000 * "%")
    for _ in range(min(count, 1000)):
        resource = request.resource_profiles.add()
        resource.resource.attributes.add(key="host.name").value.string_value_strindex = 1
        resource.resource.attributes.add(key_strindex=1).value.string_value_strindex = 1
        resource.scope_profiles.add().profiles.add()


def _nested(request: ExportRequest, count: int) -> None:
    resource = request.resource_profiles.add()
    value = resource.resource.attributes.add(key="host.name").value
    for _ in range(30):
        value = value.array_value.values.add()
    for _ in range(count):
        value.array_value.values.add()
    for _ in range(min(count, 500)):
        resource.scope_profiles.add().profiles.add()


def _sampled(request: ExportRequest) -> Any:
    return request.resource_profiles.add().scope_profiles.add().profiles


def _stack(request: ExportRequest, locations: int) -> None:
    """Add a stack of locations with a function each."""
    tables = request.dictionary
    tables.string_table.append("f")
    tables.mapping_table.add(filename_strindex=1)
    for number in range(1, locations + 1):
        tables.function_table.add(name_strindex=1)
        tables.location_table.add(mapping_index=1, address=number).lines.add(function_index=number, line=1)
    tables.stack_table.add(location_indices=range(1, locations + 1))


def _profiles_of_one_stack(request: ExportRequest, count: int) -> None:
    _stack(request, count // 2)
    profiles = _sampled(request)
    for _ in range(min(count, 1000)):
        profiles.add().samples.add(stack_index=1, values=[1])


def _samples_of_a_deep_stack(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    request.dictionary.stack_table.add(location_indices=[1] * (2 * count))
    profile = _sampled(request).add()
    for number in range(count):
        request.dictionary.attribute_table.add(key_strindex=1).value.int_value = number
        profile.samples.add(stack_index=2, values=[1], attribute_indices=[number + 1])
    request.dictionary.string_table[1] = "thread.id"


def _samples(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    profile = _sampled(request).add()
    for _ in range(count):
        profile.samples.add(stack_index=1, values=[1])


def _empty_samples(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    profile = _sampled(request).add()
    for _ in range(count):
        profile.samples.add()


def _values(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    _sampled(request).add().samples.add(stack_index=1, values=[1] * count)


def _attributes_of_samples(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    request.dictionary.string_table.append("thread.id")
    request.dictionary.attribute_table.add(key_strindex=2).value.string_value = "a"
    _sampled(request).add().samples.add(stack_index=1, values=[1], attribute_indices=[1] * count)


def _attributes_of_profiles(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    request.dictionary.string_table.append("pprof.profile.comment")
    comments = request.dictionary.attribute_table.add(key_strindex=2).value.array_value.values
    for number in range(min(count, 100)):
        comments.add().string_value = f"{number}"
    profiles = _sampled(request)
    for _ in range(min(count, 1000)):
        profile = profiles.add(attribute_indices=[1])
        profile.samples.add(stack_index=1, values=[1])


def _lines(request: ExportRequest, count: int) -> None:
    _stack(request, 1)
    for _ in range(count):
        request.dictionary.location_table[1].lines.add(function_index=1)
    _sampled(request).add().samples.add(stack_index=1, values=[1])


def _attributes_of_locations(request: ExportRequest, count: int) -> None:
    _stack(request, count)
    for _ in range(count):
        request.dictionary.mapping_table[1].attribute_indices.append(0)
        request.dictionary.location_table[1].attribute_indices.append(0)
    _sampled(request).add().samples.add(stack_index=1, values=[1])


def _empty_strings(request: ExportRequest, count: int) -> None:
    request.dictionary.string_table.extend([""] * count)
    _samples(request, 1)


def _unknown_fields(request: ExportRequest, count: int) -> None:
    _samples(request, 1)
    request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].MergeFromString(b"\x78\0" * count)


_OTLP: Mapping[str, Fill] = {
    fill.__name__.strip("_").replace("_", " "): fill
    for fill in (
        _scopes, _few_labels, _long_label_of_scopes, _other_attributes, _long_texts, _nested,
        _profiles_of_one_stack,
        _samples_of_a_deep_stack, _samples, _empty_samples, _values, _attributes_of_samples,
        _attributes_of_profiles, _lines, _attributes_of_locations, _empty_strings, _unknown_fields,
    )
}  # fmt: skip


def _as_json(request: ExportRequest) -> bytes:
    return json.dumps(json_format.MessageToDict(request), separators=(",", ":")).encode()


# JSON by its text


def _json_texts(inner: str) -> dict[str, Make]:
    """Return texts of JSON that aren't the message, where `inner` has `%s` for a value."""

    return {
        "escapes": lambda count: (inner % ('"' + "\\u0041" * count + '"')).encode(),
        "half pairs": lambda count: (inner % ('"' + "\\ud800" * count + '"')).encode(),
        "backslashes": lambda count: (inner % ('"' + "\\\\" * count + '"')).encode(),
        "digits": lambda count: (inner % ("9" * count)).encode(),
        "many numbers": lambda count: (inner % ("[" + ",".join(["9"] * count) + "]")).encode(),
        "exponents": lambda count: (inner % ("[" + ",".join(["1e999"] * count) + "]")).encode(),
        "arrays in arrays": lambda count: (inner % ("[" * count + "]" * count)).encode(),
        "objects in objects": lambda count: (inner % ('{"":' * count + "0" + "}" * count)).encode(),
        "empty objects": lambda count: (inner % ("[" + ",".join(["{}"] * count) + "]")).encode(),
        "keys": lambda count: (
            inner % ("{" + ",".join(f'"{number}":0' for number in range(count)) + "}")
        ).encode(),
        "a key again": lambda count: (inner % ("{" + ",".join(['"a":0'] * count) + "}")).encode(),
        "blanks": lambda count: (inner % (" " * count + "0")).encode(),
        "open": lambda count: (inner % ("[" * count)).encode(),
        "digits after a point": lambda count: (inner % ("0." + "9" * count)).encode(),
    }


# Series with labels


def _labels(request: Any, count: int) -> None:
    series = request.series.add()
    for number in range(count):
        _label(series).add(name=f"a{number}", value="b")
    _label(series).add(name="__name__", value="process_cpu")
    series.samples.add(raw_profile=_PROFILE)


def _label(series: Any) -> Any:
    return series.labels.labels if hasattr(series.labels, "labels") else series.labels


def _hidden_labels(request: Any, count: int) -> None:
    series = request.series.add()
    _label(series).add(name="__name__", value="process_cpu")
    for number in range(count):
        _label(series).add(name=f"__{number}", value="b")
    for _ in range(min(count, 90)):
        series.samples.add(raw_profile=_PROFILE[:30])


def _long_label(request: Any, count: int) -> None:
    series = request.series.add()
    _label(series).add(name="__name__", value="process_cpu")
    _label(series).add(name="a", value="%" * count)
    for _ in range(90):
        series.samples.add(raw_profile=b"a")


def _long_service(request: Any, count: int) -> None:
    series = request.series.add()
    _label(series).add(name="__name__", value="process_cpu")
    _label(series).add(name="service_name", value="/" * count)
    series.samples.add(raw_profile=_PROFILE)


def _series(request: Any, count: int) -> None:
    for _ in range(count):
        request.series.add()


def _empty_labels(request: Any, count: int) -> None:
    series = request.series.add()
    for _ in range(count):
        _label(series).add()


def _empty_profiles(request: Any, count: int) -> None:
    series = request.series.add()
    _label(series).add(name="__name__", value="process_cpu")
    for _ in range(count):
        series.samples.add()


_SERIES: Mapping[str, Callable[[Any, int], None]] = {
    fill.__name__.strip("_").replace("_", " "): fill
    for fill in (_labels, _hidden_labels, _long_label, _long_service, _series, _empty_labels, _empty_profiles)
}


def _filled(kind: Callable[[], Any], fill: Callable[[Any, int], None], *, as_json: bool) -> Make:
    def make(count: int) -> bytes:
        request = kind()
        fill(request, count)
        return _as_json(request) if as_json else cast("bytes", request.SerializeToString())

    return make


# Forms


def _tags(count: int) -> bytes:
    return upload(",".join(f"a{number}:b" for number in range(count)), {"cpu.pprof": _PROFILE})


def upload(tags: str, parts: Mapping[str, bytes]) -> bytes:
    """Return an upload of Datadog's tracers."""
    event = json.dumps({"tags_profiler": tags, "start": "2023-11-14T22:13:20Z"}).encode()
    return form(event=event, **parts)[0]


def _strings(count: int) -> bytes:
    """Return an upload of a profile that is split by its nine types, and uses few of its strings."""
    types = (b"cpu", b"wall", b"alloc", b"heap", b"lock", b"exception", b"timeline", b"gpu", b"z")
    profile = Profile(string_table=[b"", *types, *[b""] * count])
    for number, _ in enumerate(types, 1):
        profile.sample_type.add(type=number, unit=number)
    profile.sample.add(value=[1] * len(types))
    return upload("a:b", {"a.pprof": profile.SerializeToString()})


def _tags_of_many(count: int) -> bytes:
    tags = ",".join(f"a{number}:b" for number in range(count))
    return upload(tags, {f"{number}.pprof": b"\x1f0" for number in range(30)})


def _commas(count: int) -> bytes:
    return upload("," * count, {"cpu.pprof": _PROFILE})


def _colons(count: int) -> bytes:
    return upload("a" + ":" * count, {"cpu.pprof": _PROFILE})


def _long_tag(count: int) -> bytes:
    return upload("a:" + "%" * count, {"cpu.pprof": _PROFILE, "delta-heap.pprof": _PROFILE})


def _parts(head: str) -> Make:
    """Return forms of parts with the same header."""
    return lambda count: f"--xYz\r\n{head}\r\n\r\n\r\n".encode() * count + b"--xYz--\r\n"


def _head(piece: str) -> Make:
    head, rest = "--xYz\r\nContent-Disposition: form-data", '; name="event"\r\n\r\n{}\r\n--xYz--\r\n'
    return lambda count: f"{head}{piece * count}{rest}".encode()


_FORMS: Mapping[str, Make] = {
    "parts": _parts('Content-Disposition: form-data; name="a"'),
    "parts without a name": _parts(""),
    "semicolons": _head(";"),
    "quotes": _head(';"'),
    "parameters": _head(";a=b"),
    "continuations": _head(";name*0*=a"),
    "encoded words": _head("=?utf-8?q?a?="),
    "lines of a head": _parts("a: b\r\n" * 20),
    "heads": lambda count: f"--xYz\r\n{'a: b' + chr(13) + chr(10)}".encode() * count + b"--xYz--\r\n",
}


def long_key(number: int) -> tuple[bytes, Unpack]:
    """Return the gzip of an export with an attribute whose key of 200 KiB has a number, and what reads it."""
    request = _request()
    resource = request.resource_profiles.add()
    resource.resource.attributes.add(key=f"{number}" + "a" * (200 << 10)).value.string_value = "a"
    resource.scope_profiles.add().profiles.add()
    return gzip.compress(request.SerializeToString()), partial(unpack_export, export_options(is_json=False))


def _config(make: Make, count: int) -> bytes:
    return form(profile=_PROFILE, sample_type_config=make(count))[0]


def _event(make: Make, count: int) -> bytes:
    return form(**{"event": make(count), "cpu.pprof": _PROFILE})[0]


def _of_schema(make: Make, count: int) -> bytes:
    return make(count).replace(b"{", b'{"$schema":"https://www.speedscope.app/file-format-schema.json",', 1)


def _events(piece: str, count: int) -> bytes:
    events = ",".join(piece % number if "%" in piece else piece for number in range(count))
    profile = f'{{"type":"evented","name":"a","unit":"seconds","events":[{events}]}}'
    return _of_schema(
        lambda _: f'{{"shared":{{"frames":[{{"name":"a"}}]}},"profiles":[{profile}]}}'.encode(), count
    )


def _files_of_speedscope() -> Iterator[tuple[str, Make, Unpack]]:
    speedscope = partial(
        unpack_ingest, IngestOptions((("service_name", "a"),), None, "speedscope", "", Sender())
    )
    for piece in ('{"type":"O","frame":0,"at":0}', '{"type":"O","frame":0,"at":%d}'):
        yield f"ingest of speedscope, events {piece}", partial(_events, piece), speedscope
    for inner in ("%s", '{"profiles":%s}', '{"profiles":[],"shared":{"frames":%s}}'):
        for name, make in _json_texts(inner).items():
            yield f"ingest of speedscope, {name} in {inner}", partial(_of_schema, make), speedscope


def hostile_bodies() -> Iterator[tuple[str, Make, Unpack]]:
    """Yield the name of each shape, what makes a body of a number of repetitions, and what reads it."""
    export = partial(unpack_export, export_options(is_json=False))
    export_json = partial(unpack_export, export_options(is_json=True))
    for name, fill in _OTLP.items():
        yield f"otlp, {name}", _filled(_request, fill, as_json=False), export
        yield f"otlp json, {name}", _filled(_request, fill, as_json=True), export_json
    for inner in ('{"resourceProfiles":%s}', '{"dictionary":{"stringTable":["",%s]}}',
                  '{"resourceProfiles":[{"resource":{"attributes":[{"value":{"intValue":%s}}]}}]}',
                  '{"a":%s}'):  # fmt: skip
        for name, make in _json_texts(inner).items():
            yield f"otlp json, {name} in {inner}", make, export_json
    push, push_json = (partial(unpack_push, PushOptions(as_json, 100, Sender())) for as_json in (False, True))
    write = partial(unpack_write_raw, WriteOptions(100, Sender()))
    for name, shape in _SERIES.items():
        yield f"push, {name}", _filled(PushRequest, shape, as_json=False), push
        yield f"push json, {name}", _filled(PushRequest, shape, as_json=True), push_json
        yield f"write raw, {name}", _filled(WriteRawRequest, shape, as_json=False), write
    for inner in ('{"series":%s}', '{"series":[{"labels":[{"name":%s}]}]}',
                  '{"series":[{"samples":[{"rawProfile":%s}]}]}', '{"a":%s}'):  # fmt: skip
        for name, make in _json_texts(inner).items():
            yield f"push json, {name} in {inner}", make, push_json
    to_datadog = partial(unpack_upload, UploadOptions("xYz", 100, "host:a,env:b", Sender()))
    of_ingest = (("service_name", "a"), ("pyroscope_spy", "unknown"))
    ingest = partial(unpack_ingest, IngestOptions(of_ingest, None, "", form()[1], Sender()))
    for uploads in (_strings, _tags, _tags_of_many, _commas, _colons, _long_tag):
        yield f"datadog, {uploads.__name__.strip('_').replace('_', ' ')}", uploads, to_datadog
    for name, forms in _FORMS.items():
        yield f"datadog, {name}", forms, to_datadog
        yield f"ingest, {name}", forms, ingest
    yield from _files_of_speedscope()
    for name, make in _json_texts("%s").items():
        yield f"ingest, {name}", partial(_config, make), ingest
        yield f"datadog, {name}", partial(_event, make), to_datadog
