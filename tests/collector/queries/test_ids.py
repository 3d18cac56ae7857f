"""Samples are selected by the ids of their traces and spans, and profiles by their own."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.conftest import PROFILES
from tests.collector.queries.test_queries import asked, refused, store
from tests.collector.visitor import Visitor
from tests.merge.go_top import go_top, pprof
from tests.server import Server

# See the README beside it.
SPANS = Path(__file__).parents[2] / "testdata" / "spans" / "otel-profiling-go.pb.gz"
TRACES = [
    "3aaa1e2ff6b20fed95ca540205b841e0",
    "12f546a1107e222a87e2459da0ceda54",
    "472274ced7bbfa4af63eeedb04a1c46e",
]
ROOTS = ["6572b9e8b5224528", "3eecceae262262b4", "4397d2911649afbf"]
UNKNOWN = "0123456789abcdef"


def uuid_of(profile: bytes) -> str:
    digest = hashlib.sha256(gzip.decompress(profile)).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


@pytest.fixture(scope="module")
def spanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a collector with a profile that has ids of spans, and two of the same service that have none."""
    with Server(tmp_path_factory.mktemp("spanned")) as server:
        for file in (SPANS, *sorted(PROFILES.glob("apisvc-v1-s2-*"))):
            store(server, file.read_bytes(), service="shop")
        yield server


def focused(folder: Path, *options: str) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return what `go tool pprof` shows of the profile with spans: the total, and what each function has."""
    table = go_top(SPANS.read_bytes(), folder, "samples", "count", *options)
    return sum(flat for flat, _ in table.values()), table


@pytest.mark.parametrize(
    ("query", "tags"),
    [
        ({"trace_id": TRACES[0]}, f"trace_id={TRACES[0]}"),
        ({"trace_id": TRACES[1].upper()}, f"trace_id={TRACES[1]}"),
        ({"span_id": ROOTS[2]}, f"span_id={ROOTS[2]}"),
        ({"span_id": f"{ROOTS[0]},{UNKNOWN},{ROOTS[1]}"}, f"span_id={ROOTS[0]}|{ROOTS[1]}"),
        ({"span_id": ROOTS[1], "trace_id": ",".join(TRACES)}, f"span_id={ROOTS[1]}"),
    ],
)
def test_views_have_the_samples_that_tagfocus_has(
    spanned: Server, tmp_path: Path, query: dict[str, str], tags: str
) -> None:
    total, table = focused(tmp_path, f"-tagfocus={tags}")
    assert 0 < total < 44
    asks = {"service": "shop", "sample_type": "samples", **query}
    top = asked(spanned, "/v1/top", by="function", n="1000", **asks)
    assert top["total"] == top["whole"] == total
    assert {row["name"]: (row["flat"], row["cum"]) for row in top["rows"]} == table
    flame = asked(spanned, "/v1/flame", limit="1000", **asks)
    assert flame["total"] == total
    assert sum(call["flat"] for call in flame["calls"]) == total
    function = asked(spanned, "/v1/function", function="main.price", **asks)
    assert (function["flat"], function["cum"]) == table["main.price"]
    series = asked(spanned, "/v1/series", function="main.price", step="day", **asks)
    assert sum(point["total"] for point in series["points"]) == total
    assert sum(point["cum"] for point in series["points"]) == table["main.price"][1]


def test_a_merge_has_the_stacks_that_tagfocus_has(spanned: Server, tmp_path: Path) -> None:
    """Their labels are there with `sample_labels=all`. The merge of all samples stays as it is."""
    whole = spanned.merge(query={"service": "shop"})
    selected = {"service": "shop", "trace_id": TRACES[2]}
    for labels in ("stable", "all"):
        made = spanned.merge(query={**selected, "sample_labels": labels})
        assert made.status_code == 200
        assert made.headers["ETag"] != whole.headers["ETag"]
        own = gzip.decompress(made.content)
        theirs = go_top(SPANS.read_bytes(), tmp_path, "cpu", "ns", f"-tagfocus=trace_id={TRACES[2]}")
        assert go_top(own, tmp_path, "cpu", "ns") == theirs
        profile = Profile.FromString(own)
        keys = {profile.string_table[label.key] for sample in profile.sample for label in sample.label}
        assert keys == {b"span_name"} | ({b"span_id", b"trace_id"} if labels == "all" else set())
        # No name of the other requests and profiles is in it.
        assert not {b"GET /1", b"net/http.(*conn).serve"} & {*profile.string_table}
    folded = spanned.merge(query={**selected, "format": "folded"}).text
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) > 0
    assert spanned.merge(query={"service": "shop"}).headers["ETag"] == whole.headers["ETag"]
    assert "price" in pprof(own, tmp_path, "-top")


def test_a_request_is_compared_with_all(spanned: Server, tmp_path: Path) -> None:
    total, _ = focused(tmp_path, f"-tagfocus=span_id={ROOTS[0]}")
    query = {"service": "shop", "sample_type": "samples", "span_id": ROOTS[0]}
    diff = asked(spanned, "/v1/diff", base_labels="", **query)
    every = asked(spanned, "/v1/top", service="shop", sample_type="samples")
    assert (diff["now"]["total"], diff["base"]["total"]) == (total, every["total"])
    flame = asked(spanned, "/v1/flame", base_labels="", **query)
    assert (flame["total"], flame["base_total"]) == (total, every["total"])


def test_a_profile_has_an_id(spanned: Server) -> None:
    content = SPANS.read_bytes()
    listed = asked(spanned, "/v1/profiles", service="shop")["profiles"]
    assert len(listed) == 3
    for each in listed:
        alone = {"service": "shop", "profile_id": each["profile_id"]}
        assert asked(spanned, "/v1/profiles", **alone)["profiles"] == [each]
        assert asked(spanned, "/v1/top", **alone)["profiles"] == 1
        bare = each["profile_id"].replace("-", "").upper()
        assert asked(spanned, "/v1/top", service="shop", profile_id=bare)["profiles"] == 1
    assert uuid_of(content) in {each["profile_id"] for each in listed}
    top = asked(spanned, "/v1/top", service="shop", profile_id=uuid_of(content), span_id=ROOTS[1])
    assert (top["profiles"], top["total"]) == (1, 15 * 10**7)
    refused(spanned, "/v1/top", 404, service="shop", profile_id="0" * 32)


@pytest.mark.parametrize("path", ["/v1/top", "/v1/flame", "/v1/merge"])
def test_ids_that_nothing_has_give_an_empty_answer(spanned: Server, path: str) -> None:
    answer = spanned.ask(path, service="shop", trace_id="f" * 32)
    assert answer.status_code == 200
    if path == "/v1/merge":
        assert not Profile.FromString(gzip.decompress(answer.content)).sample
    else:
        assert answer.json()["total"] == 0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("trace_id", "1", "32 hex digits"),
        ("trace_id", "g" * 32, "32 hex digits"),
        ("trace_id", "\N{FULLWIDTH DIGIT ONE}" * 32, "32 hex digits"),
        ("trace_id", ROOTS[0], "32 hex digits"),
        ("span_id", TRACES[0], "16 hex digits"),
        ("span_id", f"{ROOTS[0]}\n", "16 hex digits"),
        ("span_id", "a" * 10_000, "16 hex digits"),
        ("profile_id", "----", "32 hex digits"),
        ("profile_id", f"{TRACES[0]}' or 1=1", "32 hex digits"),
        ("profile_id", "1-2" * 11, "32 hex digits"),
        ("span_id", ",".join(f"{number:016x}" for number in range(101)), "101 ids; the limit is 100"),
    ],
)
def test_bad_ids_are_refused_by_name(spanned: Server, name: str, text: str, said: str) -> None:
    for path in ("/v1/top", "/v1/merge", "/v1/flame"):
        detail = refused(spanned, path, 400, service="shop", **{name: text})
        assert detail.startswith(name)
        assert said in detail


def test_a_list_of_profiles_and_a_combine_take_no_samples(spanned: Server) -> None:
    assert "span_id" in refused(spanned, "/v1/profiles", 400, service="shop", span_id=ROOTS[0])
    answer = spanned.combine(query={"service": "shop", "span_id": ROOTS[0]})
    assert answer.status_code == 400
    assert "span_id" in answer.text


def test_pages_have_the_samples_and_keep_the_ids(spanned: Server) -> None:
    visitor = Visitor(spanned)
    query = f"?trace_id={TRACES[0]}&span_id={ROOTS[0]}"
    for page in ("", "/top", "/diff", "/series"):
        shown = visitor.page(f"/ui/services/shop{page}{query}")
        assert f"trace is {TRACES[0]} remove span is {ROOTS[0]} remove" in shown.text
        removing = shown.all("a", aria_label="Remove the condition on the trace")
        assert [tag.attributes["href"] for tag in removing] == [f"/ui/services/shop{page}?span_id={ROOTS[0]}"]
        assert f"/ui/services/shop/top?trace_id={TRACES[0]}&span_id={ROOTS[0]}" in shown.links()
        hidden = {tag.attributes.get("name"): tag.attributes.get("value") for tag in shown.all("input")}
        assert (hidden["trace_id"], hidden["span_id"]) == (TRACES[0], ROOTS[0])


def test_go_reads_the_same_labels(tmp_path: Path) -> None:
    """The file is what the README says."""
    text = pprof(SPANS.read_bytes(), tmp_path, "-tags", "-sample_index=samples")
    for count, (trace, span) in zip((9, 15, 19), zip(TRACES, ROOTS, strict=True), strict=True):
        for id_ in (trace, span):
            assert f"{count} (" in next(line for line in text.splitlines() if id_ in line)
