"""Labels that number requests are left out where that is asked for: profiles then add up."""

from __future__ import annotations

import gzip
import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pprof_merge import Collection, decode, encode
from pprof_merge.merging import REQUEST_LABELS, Batch, RequestIds
from pprof_proto.profile_pb2 import Profile

from tests.merge.command.installed import pprof_merge
from tests.merge.differential import canonical, check_same

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.oracle import Oracle

# As Datadog's tracer for Go writes them, Pyroscope's for OpenTelemetry, and an eBPF profiler that reads them.
OF_REQUESTS = [
    "span id", "local root span id", "span_id", "span.id", "trace_id", "process.context.label.span id",
    "profile_id",
]  # fmt: skip
STABLE = ["trace endpoint", "span_name", "latency", "span"]


def traced(
    number: int, samples: list[tuple[int, dict[str, int | str]]], of: list[int] | None = None
) -> bytes:
    """Return a profile: the stack of each sample, of a few, and its labels; `of` has their values."""
    profile = Profile(time_nanos=1 + number, duration_nanos=10**9)
    strings: dict[str, int] = {"": 0}

    def string(text: str) -> int:
        return strings.setdefault(text, len(strings))

    profile.sample_type.add(type=string("samples"), unit=string("count"))
    profile.mapping.add(id=1, memory_start=4096, memory_limit=8192, filename=string("7"))
    for id_ in range(1, 5):
        profile.function.add(id=id_, name=string(str(id_)), filename=string("main.go"), start_line=id_)
        profile.location.add(id=id_, mapping_id=1, address=4096 + id_).line.add(function_id=id_, line=2 * id_)
    for at, (stack, labels) in enumerate(samples):
        sample = profile.sample.add(location_id=range(1 + stack % 4, 5), value=[of[at] if of else 1])
        for key, value in labels.items():
            if isinstance(value, str):
                sample.label.add(key=string(key), str=string(value))
            else:
                sample.label.add(key=string(key), num=value, num_unit=string("id"))
    profile.string_table.extend(text.encode() for text in strings)
    return profile.SerializeToString()


def stripped(content: bytes) -> bytes:
    """Return a profile without the labels of requests."""
    profile = Profile.FromString(content)
    for sample in profile.sample:
        kept = [each for each in sample.label if profile.string_table[each.key].decode() not in OF_REQUESTS]
        del sample.label[:]
        sample.label.extend(kept)
    return profile.SerializeToString()


def merged(profiles: list[bytes]) -> bytes:
    """Return their merge without labels of requests, as protobuf."""
    batch = Batch(every_label=False)
    for profile in profiles:
        batch.read(profile)
    return encode(batch.merge())


keys = st.sampled_from(OF_REQUESTS + STABLE)
texts = st.one_of(st.sampled_from(["1", "2", "3", "main.go", "span id", "7"]), st.integers(1, 3))
some = st.lists(
    st.tuples(st.integers(0, 3), st.dictionaries(keys, texts, max_size=3), st.integers(-2, 3)), max_size=12
)


@settings(max_examples=60)
@given(profiles=st.lists(some, min_size=1, max_size=3))
def test_a_merge_is_what_go_makes_of_profiles_without_them(
    oracle: Oracle, profiles: list[list[tuple[int, dict[str, int | str], int]]]
) -> None:
    inputs = [
        traced(at, [(stack, labels) for stack, labels, _ in each], [value for *_, value in each])
        for at, each in enumerate(profiles)
    ]
    theirs = oracle.merge(canonical([stripped(each) for each in inputs]))
    check_same(merged(inputs), theirs)


def test_all_labels_stay_unless_it_is_asked_for(oracle: Oracle) -> None:
    inputs = [traced(at, [(1, {key: str(at)}) for key in OF_REQUESTS]) for at in range(3)]
    batch = Batch()
    for each in inputs:
        batch.read(each)
    check_same(encode(batch.merge()), oracle.merge(canonical(inputs)))


def test_rows_and_names_do_not_grow_with_requests() -> None:
    """The texts of the labels, which are as many as requests, aren't kept either."""
    collection = Collection(batch=Batch(every_label=False))
    sizes = []
    for at in range(20):
        collection.add(
            traced(at, [(n, {"span id": f"{at}-{n}", "local root span id": n}) for n in range(400)])
        )
        sizes.append(collection.since(Collection().mark))
    assert {len(each.entries.strings) for each in sizes} == {len(sizes[0].entries.strings)}
    assert len(sizes[-1].profiles.stacks) == 20 * 4
    assert collection.merge(range(20)).samples.values.tolist() == [[20 * 100]] * 4


@pytest.mark.parametrize("key", sorted(REQUEST_LABELS))
def test_each_key_is_one(key: bytes) -> None:
    profile = decode(merged([traced(0, [(1, {key.decode(): str(n)}) for n in range(9)])]))
    assert profile.samples.values.tolist() == [[9]]


def test_a_batch_of_another_process_leaves_them_out() -> None:
    inputs = [traced(at, [(1, {"span id": n, "latency": 1}) for n in range(9)]) for at in range(2)]
    batch, other = Batch(every_label=False), Batch(every_label=False)
    batch.read(inputs[0])
    other.read(inputs[1])
    batch.absorb(pickle.loads(pickle.dumps(other)))  # noqa: S301
    assert encode(batch.merge()) == merged(inputs)


def test_the_command_takes_both(tmp_path: Path) -> None:
    inputs = [traced(at, [(1, {"span id": f"{at}.{n}"}) for n in range(9)]) for at in range(2)]
    files = [tmp_path / f"{at}.pb" for at in range(2)]
    for file, content in zip(files, inputs, strict=True):
        file.write_bytes(content)
    for options, samples in (
        ((), 18),
        (("--sample-labels", "stable"), 1),
        (("--sample-labels=stable", "-j2"), 1),
    ):
        assert pprof_merge(*options, "-o", tmp_path / "merge", *files).returncode == 0
        made = Profile.FromString(gzip.decompress((tmp_path / "merge").read_bytes()))
        assert len(made.sample) == samples


# Ids as labels have them: in hex, in upper case, and as decimal texts and numbers of Datadog's tracers.
SPANS = ["00000bac2a5ab0c7", "ffffffffffffff9c"]
WRITTEN: list[tuple[str, str | int]] = [
    ("span_id", SPANS[0]),
    ("profile_id", SPANS[0].upper()),
    ("span id", str(int(SPANS[0], 16))),
    ("local root span id", -100),
    ("process.context.label.span id", SPANS[1]),
    ("trace_id", "0" * 16 + SPANS[1]),
    ("span_name", SPANS[0]),
    ("span.id", "ffffffffffffff9d"),
]
OF_FIRST, OF_SECOND, OF_TRACE = {0, 1, 2}, {3, 4}, {5}
picked = st.lists(
    st.tuples(st.integers(0, 3), st.sets(st.sampled_from(range(len(WRITTEN))), max_size=3)), max_size=9
)


@settings(max_examples=60)
@given(
    profiles=st.lists(picked, min_size=1, max_size=3),
    spans=st.sampled_from([(), (SPANS[0],), (SPANS[1],), tuple(SPANS)]),
    has_trace=st.booleans(),
)
def test_samples_of_requests_are_those_whose_labels_have_the_ids(
    oracle: Oracle, profiles: list[list[tuple[int, set[int]]]], spans: tuple[str, ...], has_trace: bool
) -> None:
    wanted = (OF_FIRST if SPANS[0] in spans else set()) | (OF_SECOND if SPANS[1] in spans else set())
    traces = ("0" * 16 + SPANS[1],) if has_trace else ()

    def is_wanted(labels: set[int]) -> bool:
        return (not spans or bool(labels & wanted)) and (not has_trace or bool(labels & OF_TRACE))

    def written(number: int, samples: list[tuple[int, set[int]]]) -> bytes:
        return traced(
            number, [(stack, dict(WRITTEN[at] for at in sorted(labels))) for stack, labels in samples]
        )

    for every_label in (False, True):
        batch = Batch(every_label=every_label, requests=RequestIds(traces, spans))
        for number, samples in enumerate(profiles):
            batch.read(written(number, samples))
        kept = [
            written(number, [each for each in samples if is_wanted(each[1])])
            for number, samples in enumerate(profiles)
        ]
        check_same(
            encode(batch.merge()), oracle.merge(canonical(kept if every_label else [*map(stripped, kept)]))
        )
