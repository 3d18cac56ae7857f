"""Formats that outlive a process or leave it: blob names, .inputs, entity tags, the left-out header."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pgo_collector.blobs.blobs import Blobs
from pgo_collector.errors import InputsDamaged, LabelsInvalid
from pgo_collector.http.answers import etag_matches, left_out_header
from pgo_collector.model.facts import LeftOut
from pgo_collector.model.series import BlobName, Identity, Series, labels_of_pairs, parse_labels, sent_labels
from pgo_collector.store.folder import DataFolder, folder_storage

from tests.faults.stacks import profile_of

pytestmark = pytest.mark.any_store

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
IDENTITIES = st.builds(Identity, st.integers(-(1 << 63), (1 << 63) - 1), DIGESTS)
CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"])
PARTS = st.text(CHARACTERS, max_size=12)
LABELS = st.dictionaries(PARTS.filter(str.strip), PARTS, max_size=3)
SERVICES = st.from_regex(r"[a-z][a-z._-]{0,9}", fullmatch=True)


@given(SERVICES, LABELS, IDENTITIES)
def test_a_blob_name_reads_back(service: str, given_labels: dict[str, str], identity: Identity) -> None:
    pairs = [f"{quote(key)}={quote(value)}" for key, value in given_labels.items()]
    try:
        labels = sent_labels(service, "cpu", parse_labels(",".join(pairs)).items())
    except LabelsInvalid:
        assume(False)
    wanted = {key.strip(): value.strip() for key, value in given_labels.items()}
    assert dict(labels) == {key: value for key, value in wanted.items() if value}
    series = Series(service, "cpu", labels)
    assert parse_labels(series.labels_text) == dict(labels)
    assert labels == tuple(sorted(labels))
    for kept in ([], [key for key, _ in labels[:1]], ["another"]):
        name = BlobName(series.rolled_up(kept), identity)
        assert BlobName.parse(str(name)) == name
        assert all(len(part.encode()) <= 255 for part in str(name).split("/"))


@given(st.text(CHARACTERS, min_size=1, max_size=90).filter(str.strip), st.text(CHARACTERS, max_size=200))
def test_a_label_is_as_long_as_the_name_of_a_folder_may_be(key: str, value: str) -> None:
    folder = f"{quote(key.strip(), safe='')}={quote(value.strip(), safe='')}"
    try:
        labels_of_pairs([(key, value)], 16)
        is_taken = True
    except LabelsInvalid:
        is_taken = False
    assert is_taken == (len(folder) <= 255)


def test_a_roll_up_makes_a_series_of_its_own() -> None:
    sent = Series("default", "cpu", (("pod", "p"), ("version", "1")))
    left = sent.rolled_up(["version"])
    assert (left.labels, left.dropped) == ((("version", "1"),), ("pod",))
    assert left != Series("default", "cpu", (("version", "1"),))
    assert left.rolled_up(["version"]) == left
    assert left.rolled_up(["zone"]) == Series("default", "cpu", (), ("pod", "version"))
    assert left.merged_with(Series("default", "cpu", (("version", "1"),), ("zone",))).dropped == (
        "pod",
        "zone",
    )
    assert sent.rolled_up([]) == sent.rolled_up(["pod", "version", "zone"]) == sent


@given(st.text())
def test_a_text_that_is_not_a_blob_name_is_none(text: str) -> None:
    assert BlobName.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"default/cpu/2023-11-15/1700000000000000000-{'ab' * 32}.pb.gz",  # another day
        f"default/cpu/1970-01-01/01-{'ab' * 32}.pb.gz",
        f"default/cpu/1970-01-01/1-{'AB' * 32}.pb.gz",
        f"default/cpu/1970-01-01/1-{'ab' * 31}.pb.gz",
        f"../cpu/1970-01-01/1-{'ab' * 32}.pb.gz",
        f"default/cpu/b=1/a=1/1970-01-01/1-{'ab' * 32}.pb.gz",
        f"default/cpu/a=1/a=2/1970-01-01/1-{'ab' * 32}.pb.gz",
        f"default/cpu/b=/a=1/1970-01-01/1-{'ab' * 32}.pb.gz",
        f"default/cpu/a=/a=1/1970-01-01/1-{'ab' * 32}.pb.gz",
        f"default/cpu/a=%2f/1970-01-01/1-{'ab' * 32}.pb.gz",
        f"default/cpu/2262-04-11/9223372036854775808-{'ab' * 32}.pb.gz",
    ],
)
def test_names_that_the_collector_never_gives_are_refused(text: str) -> None:
    assert BlobName.parse(text) is None


def test_inputs_read_back_and_damage_is_seen(tmp_path: Path) -> None:
    labels = (("pod", "a b,c"), ("version", "1"))
    origins = [Series("default", "cpu", labels[:count]) for count in range(3)]
    name = BlobName(Series("default", "cpu", labels[1:], ("pod",)), Identity(5, "ab" * 32))
    with DataFolder(tmp_path) as folder:
        blobs = Blobs(folder_storage(folder.path))
        (folder.blobs / str(name)).parent.mkdir(parents=True)
        (folder.blobs / str(name)).write_bytes(profile_of("a"))
        inputs = {
            BlobName(series, Identity(number, f"{number:064x}"))
            for series in (*origins, name.series)
            for number in range(-2, 9)
        }
        assert (
            blobs.write_inputs(name, inputs)
            == (folder.blobs / str(name)).with_name(path_of(name)).stat().st_size
        )
        assert blobs.read_inputs(name) == inputs
        path = (folder.blobs / str(name)).with_name(path_of(name))
        whole = path.read_bytes()
        for damaged in (b"", b"hello", whole[:-10], whole[: len(whole) // 2], whole.replace(b" ", b"", 1)):
            path.write_bytes(damaged)
            assert blobs.read_inputs(name) == inputs  # from the seal
            assert path.read_bytes() == whole
        (folder.blobs / str(name)).write_bytes(profile_of("a"))  # which has none
        for damaged in (b"", whole[:-10]):
            path.write_bytes(damaged)
            with pytest.raises(InputsDamaged, match=path.name):
                blobs.read_inputs(name)


def path_of(name: BlobName) -> str:
    return str(name).rsplit("/", maxsplit=1)[-1].replace(".pb.gz", ".inputs")


@given(st.from_regex(r"[0-9a-f]{64}", fullmatch=True), st.text(max_size=20))
def test_an_entity_tag_matches_itself_and_nothing_else(etag: str, other: str) -> None:
    assert etag_matches(f'"{etag}"', etag)
    assert etag_matches(f'"", W/"x",\tW/"{etag}" , "y"', etag)
    assert not etag_matches(etag, etag)
    assert not etag_matches(f'"{other}"', etag)


@given(st.lists(st.builds(LeftOut, st.text(), st.text())))
def test_the_left_out_header_is_bounded_ascii(left_out: list[LeftOut]) -> None:
    header = left_out_header(left_out)
    assert header.isascii()
    assert header.isprintable()


def test_the_left_out_header_quotes_and_counts() -> None:
    header = left_out_header([LeftOut('a "b" \\', "größe")] * 12)
    entry = r'"a \"b\" \\";reason="gr??e"'
    assert header == ", ".join([entry] * 10 + ["2"])
    assert len(left_out_header([LeftOut("c", "x" * 1000)])) < 200


def test_the_left_out_header_has_as_many_names_as_there_is_room_for() -> None:
    header = left_out_header([LeftOut("x" * 2500, "")] * 12)
    entry = f'"{"x" * 2500}";reason=""'
    assert header == ", ".join([entry] * 2 + ["10"])
    assert left_out_header([LeftOut("x" * 6000, "")]) == "1"
