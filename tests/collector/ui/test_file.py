"""/ui/file: a file, or two, are looked at as if they were stored, and nothing is."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from pgo_collector.submits import opened_files
from pprof_merge import FORMATS, decode, merge
from pprof_proto.profile_pb2 import Profile

from tests.collector.readers.test_readers import PERF, zstd_packed
from tests.collector.routes.test_speedscope import SAMPLED, file
from tests.collector.visitor import Page, Visitor
from tests.faults.stacks import profile_of, tally
from tests.merge.hostile import bomb
from tests.merge.stacked import heap_of
from tests.server import Server

PROFILES = Path(__file__).parents[2] / "testdata" / "profiles"
BEFORE, AFTER = (next(iter(sorted(PROFILES.glob(f"apisvc-v{n}-*.pb.gz")))).read_bytes() for n in (1, 2))
# Links: to this page, and to the share over time, which is that of many profiles.
_DIFFERS = re.compile(r'href="[^"]*"|action="[^"]*"|<input type="hidden"[^>]*>|<div><dt>Also</dt>.*?</div>')


@dataclass
class Opened:
    """The answer to a form with files: the page that it leads to."""

    answer: httpx.Response

    @property
    def path(self) -> str:
        assert self.answer.status_code == 303, Page(self.answer).text
        return self.answer.headers["Location"]

    @property
    def refusal(self) -> str:
        (alert,) = Page(self.answer).all("p", role="alert")
        return alert.text

    def page(self, name: str, **query: str) -> str:
        path, _, given = self.path.partition("?")
        return f"{path.removesuffix('/diff')}{name}?{httpx.QueryParams(given).merge(query)}"


def open_files(visitor: Visitor, name: str = "cpu.pb.gz", **files: bytes) -> Opened:
    """Send the form with `file`, and `base`, too, if given."""
    given = {field: (f"{field}-{name}", content) for field, content in files.items()}
    return Opened(visitor.post_files("/ui/file", given))


def shown(page: Page) -> str:
    """Return what a page shows from its first note or choice on, without links."""
    text = page.answer.text
    return " ".join(_DIFFERS.sub("", text[text.index('<div class="toolbar">') :]).split())


def test_each_view_says_what_it_says_of_the_stored_profile(server: Server) -> None:
    visitor = Visitor(server)
    opened = open_files(visitor, file=AFTER, base=BEFORE)
    base = dict(httpx.QueryParams(opened.path.partition("?")[2]))["base_service"]
    # As long as the path of the file: the shorter the links, the more calls has a page.
    before, after = "b" * len(base), "a" * (len(base) + len("/file"))
    for service, content in ((before, BEFORE), (after, AFTER)):
        assert server.submit(content, query={"service": service}).status_code == 204
    for page, query in (
        ("", {}),
        ("", {"by": "line", "recursion": "collapse", "search": "malloc", "layout": "flame"}),
        ("", {"focus": "http", "hide": "runtime", "sample_type": "samples"}),
        ("/top", {"by": "file", "sort": "cum"}),
        ("/function", {"function": "runtime.mallocgc"}),
        ("/diff", {"base_service": before, "by": "package"}),
    ):
        stored = Page(visitor.get(f"/ui/services/{after}{page}", None, type="cpu", **query))
        own = query | ({"base_service": base} if "base_service" in query else {})
        assert shown(visitor.page(opened.page(page, **own))) == shown(stored), page
    for name in ("pprof", "folded", "speedscope", "json"):
        of_file = visitor.get(opened.page("/merge", format=name))
        stored_one = visitor.get(f"/ui/services/{after}/merge", format=name)
        assert of_file.content == stored_one.content, name
        assert 'filename="file-cpu.pb.gz.' in of_file.headers["Content-Disposition"]
    assert visitor.get(opened.page("/flame.svg")).status_code == 200
    assert [each["service"] for each in server.ask("/v1/services").json()["services"]] == [after, before]


@pytest.mark.parametrize("name", ["folded", "speedscope"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd_packed], ids=["bare", "gzip", "zstd"])
def test_a_profile_may_come_in_other_formats(
    shared: Server, name: str, pack: Callable[[bytes], bytes]
) -> None:
    visitor = Visitor(shared)
    profile = merge([decode(AFTER)])
    opened = open_files(visitor, file=pack(FORMATS[name].write(profile)))
    folded = visitor.get(opened.page("/merge", format="folded"))
    assert folded.content == FORMATS["folded"].write(profile)


def test_perf_and_speedscope_have_labels_to_group_by(shared: Server) -> None:
    visitor = Visitor(shared)
    page = visitor.page(open_files(visitor, file=PERF).page("", group="comm"))
    assert "python" in page.text
    page = visitor.page(open_files(visitor, file=file(SAMPLED)).page("", group="profile"))
    assert "one" in page.text


def test_only_its_session_sees_a_file(server: Server) -> None:
    visitor, same_key = Visitor(server), Visitor(server)
    opened = open_files(visitor, "<b>mine.pb.gz", file=AFTER)
    assert "file--b-mine.pb.gz" in visitor.page("/ui/file").text
    assert "mine" not in same_key.page("/ui/file").text
    for page in ("", "/top", "/function", "/diff", "/merge", "/flame.svg"):
        assert visitor.get(opened.page(page)).status_code == 200, page
        assert same_key.get(opened.page(page)).status_code == 404, page
        assert Visitor(server, None).get(opened.page(page)).status_code == 303, page
    other = open_files(same_key, file=AFTER)
    base = opened.path.split("/")[4].partition("?")[0]
    assert "isn't open here" in same_key.page(other.page("/diff", base_service=base), 404).text
    # Not on the pages of stored profiles either, nor the other way round.
    assert server.submit(AFTER, query={"service": "stored"}).status_code == 204
    assert "is stored: send one" in visitor.page(f"/ui/services/{base}", 404).text
    assert visitor.get("/ui/file/services/stored").status_code == 404
    assert base not in server.ask("/v1/services").text
    visitor.post("/ui/sign-out")
    assert visitor.get(opened.page("")).status_code == 303


def test_a_stop_deletes_open_files(server: Server) -> None:
    visitor = Visitor(server)
    opened = open_files(visitor, file=AFTER)
    assert visitor.get(opened.page("")).status_code == 200
    folder = server.data / "opened"
    assert [*folder.rglob("*.pb.gz")]
    assert not server.blobs()
    assert server.stop() == 0
    assert not folder.exists()
    assert not [*server.data.rglob("*.opened-*")]
    server.start()
    assert visitor.get(opened.page("")).status_code == 404


def test_a_kill_leaves_nothing_that_is_seen_or_stays(server: Server) -> None:
    visitor = Visitor(server)
    opened = open_files(visitor, file=AFTER)
    visitor.get(opened.page(""))
    server.kill()
    assert [*(server.data / "opened").rglob("*.pb.gz")]
    server.start()
    assert visitor.get(opened.page("")).status_code == 404
    assert not [*(server.data / "opened").rglob("*.pb.gz")]


def test_the_newest_files_of_a_session_stay_open(shared: Server) -> None:
    visitor, other = Visitor(shared), Visitor(shared)
    kept = open_files(other, file=profile_of("other"))
    opened = [
        open_files(visitor, file=profile_of(f"main.f{number}"))
        for number in range(opened_files.MOST_OF_SESSION + 1)
    ]
    first, *rest = [visitor.get(each.page("")).status_code for each in opened]
    assert first == 404
    assert {*rest} == {200}
    assert other.get(kept.page("")).status_code == 200
    assert len(visitor.page("/ui/file").all("tr")) == 1 + opened_files.MOST_OF_SESSION
    assert not [*(shared.data / "opened" / "blobs").glob(opened[0].path.split("/")[4].partition("?")[0])]


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (b"", 400, "no file was chosen, or it is empty"),
        (b"hello", 422, "text, in no format that is known here"),
        (b"<script>alert(1)</script>", 422, "text, in no format"),
        (AFTER[:-30], 400, "not a profile: .*truncated"),
        (gzip.decompress(AFTER)[:-30], 400, "not a profile"),
        (bomb(64), 413, r"too large: .*PGOF_MAX_INFLATED_BYTES"),
        (zstd_packed(bytes(64 << 20)), 413, r"too large: .*PGOF_MAX_INFLATED_BYTES"),
        (zstd_packed(AFTER)[:-9], 400, "truncated"),
        (bytes(100), 400, "not a profile"),
        (b"PERFILE2" + bytes(100), 400, "a recording of perf"),
        (b"\x7fELF" + bytes(100), 400, "a program"),
        (file(SAMPLED)[:-9], 422, "isn't a file of speedscope"),
        (b"a;" * 20_000 + b"a 1\n", 413, "10,000 stack depth"),
        (Profile(string_table=[b""]).SerializeToString(), 400, "no samples"),
    ],
    ids=str,
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(
    shared: Server, content: bytes, status: int, reason: str
) -> None:
    visitor = Visitor(shared)
    opened = open_files(visitor, "<b>x</b>.bin", file=content)
    assert opened.answer.status_code == status, opened.answer.text
    assert re.search(reason, Page(opened.answer).text)
    assert "<script>alert" not in opened.answer.text
    assert "<b>x" not in opened.answer.text
    assert not Page(opened.answer).all("tbody")


def test_two_files_of_different_types_are_no_difference(shared: Server) -> None:
    visitor = Visitor(shared)
    heap = heap_of({"main;f": [1, 2, 3, 4]})
    opened = open_files(visitor, "x", file=AFTER, base=heap)
    assert opened.answer.status_code == 422
    assert "base-x is of the type heap, and file-x of the type cpu" in Page(opened.answer).text
    # Of one type, with other sample types: the page of the difference says so.
    folded, seconds = b"main;f 3\n", b"a 7 1.5: 3 faults: \n\t 1f f (/a)\n"
    answer = visitor.get(open_files(visitor, "x", file=folded, base=seconds).path)
    assert answer.status_code in {200, 422}
    assert visitor.get(open_files(visitor, "x", file=heap).path).status_code == 200


def test_only_forms_of_these_pages_open_files(shared: Server) -> None:
    visitor = Visitor(shared)
    files = {"file": ("x", AFTER)}
    for site, status in (("cross-site", 403), ("same-origin", 303)):
        answer = visitor.post_files("/ui/file", files, Sec_Fetch_Site=site)
        assert answer.status_code == status
    answer = Visitor(shared, None).post_files("/ui/file", files)
    assert answer.headers["Location"].startswith("/ui/sign-in")
    assert visitor.post("/ui/file", {"file": "x"}).status_code == 400
    large = {"file": ("x", bytes(17 << 20))}
    assert visitor.post_files("/ui/file", large).status_code == 413


def test_forms_with_odd_parts_are_refused(shared: Server) -> None:
    visitor = Visitor(shared)
    odd: Mapping[str, dict[str, tuple[str, bytes]]] = {
        "many parts": {f"field{number}": ("x", b"x") for number in range(9)},
        "other names": {"files": ("x", AFTER)},
    }
    for files in odd.values():
        assert visitor.post_files("/ui/file", files).status_code == 400
    answer = visitor.post("/ui/file", {"x": "y"}, Content_Type="multipart/form-data")
    assert answer.status_code == 400


def test_stored_profiles_are_as_they_were(server: Server) -> None:
    """The same bytes, looked at and stored, count once."""
    visitor = Visitor(server)
    content = profile_of("main.run")
    opened = open_files(visitor, file=content)
    assert server.submit(content, query={"service": "shop"}).status_code == 204
    assert tally(server.merge(query={"service": "shop"}).content) == {"main.run": 1}
    assert visitor.get(opened.page("")).status_code == 200
