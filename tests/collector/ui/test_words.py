"""The words of pages for an absence or a number: whether it is of the filter or of the fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pprof_proto.profile_pb2 import Profile

from tests.collector.recorded_traces import put_traces
from tests.collector.visitor import Page, Visitor
from tests.merge.stacked import heap_of, stacked
from tests.merge.tracked import MS, Events, tracked
from tests.server import Server

pytestmark = pytest.mark.any_store

DAY = 86400 * 10**9
NOTHING = "All values of inuse_space in these profiles are 0."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A fleet in which one service has changed and one has stopped, and one whose heap is of zeros."""
    now = time.time_ns()
    targets = {"PGOF_CAPTURE_TARGETS": "shop=http://127.0.0.1:9/ new=http://127.0.0.1:9/"}
    with Server(tmp_path_factory.mktemp("words"), targets) as server:

        def submit(service: str, profile: bytes, **query: str) -> None:
            assert server.submit(profile, query={"service": service, **query}).status_code == 204

        for age in range(1, 14):
            calls = {"main.main;main.old": 900, "main.main;main.new": 100 if age > 7 else 800}
            submit("changed", stacked(calls, time_nanos=now - age * DAY + 10**9))
        for age in range(8, 13):
            for hour in range(4):
                steady = stacked(
                    {"main.main;main.steady": 50}, time_nanos=now - age * DAY + hour * 3600 * 10**9
                )
                submit("stopped", steady, labels="instance=a")
        zeros = heap_of({"main.main;main.keep": [5, 80, 0, 0]}, time_nanos=now - DAY)
        for service in ("empty", "empty-too"):
            submit(service, zeros, type="heap")
        submit("allocator", only_allocated(zeros), type="heap")
        for number in range(10):
            for age in (9, 10):
                submit(f"gone{number}", stacked({"main.main": 1}, time_nanos=now - age * DAY), type="other")
        for age in range(3):
            profile = stacked({f"main.main;main.of{age}": 10}, time_nanos=now - age * DAY)
            submit("shop", profile, labels=f"instance=web-{age},version={age}")
        waits = tracked([Events("main;wait", 8 * MS, 3, 30 * MS)], time_nanos=now - DAY)
        submit("db", waits, type="offcpu")
        submit("idle", tracked([Events("main;wait", 8 * MS, 0, 0)], time_nanos=now - DAY), type="offcpu")
        put_traces(server)
        yield server


@pytest.fixture(scope="module")
def visitor(server: Server) -> Visitor:
    return Visitor(server)


def only_allocated(heap: bytes) -> bytes:
    """Return a heap profile without what is in use."""
    profile = Profile.FromString(heap)
    del profile.sample_type[2:]
    for sample in profile.sample:
        del sample.value[2:]
    return profile.SerializeToString()


def section(page: Page, name: str) -> str:
    (found,) = page.all("section", aria_label=name)
    return " ".join(found.text.split())


def facts(page: Page) -> dict[str, str]:
    texts = [" ".join(tag.text.split()) for tag in page.tags if tag.name in {"dt", "dd"}]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def test_what_a_search_leaves_out_is_not_called_unchanged_or_running(visitor: Visitor) -> None:
    whole = visitor.page("/ui/")
    assert "changed: main.old" in section(whole, "Changed since last week")
    assert "stopped: newest of" in section(whole, "Stopped sending")
    assert section(whole, "Release due") == "Release due None."
    page = visitor.page("/ui/", search="shop")
    for name in ("Changed since last week", "Stopped sending"):
        said = section(page, name).removeprefix(name).strip()
        assert said == "No service whose name contains shop; 1 other: show all."
    assert section(page, "Release due").endswith("No service whose name contains shop, and no other.")
    assert "of services whose names contain shop: 1 of 3." in page.text
    assert "No function whose name contains shop is among the 100 largest of a service." in page.text
    assert "/ui/?type=cpu" in page.links()
    found = visitor.page("/ui/", search="chang")
    assert "main.old" in section(found, "Changed since last week")


def test_the_api_counts_what_its_search_leaves_out(server: Server) -> None:
    for search, names in ("", {"changed", "stopped", "shop"}), ("sho", {"shop"}):
        answer = server.ask("/v1/fleet", search=search).json()
        assert {each["service"] for each in answer["services"]} == names
        assert answer["counts"] == {"services": 3, "changed": 1, "stopped": 1, "release_due": 0}


def test_the_overview_says_of_which_type_it_is(visitor: Visitor) -> None:
    assert "Profiles of the type cpu." in visitor.page("/ui/").text
    page = visitor.page("/ui/", type="heap", search="e")
    assert "Profiles of the type heap, of services" in page.text
    (field,) = page.all("input", name_="type")
    assert field.attributes["value"] == "heap"
    none = "No service has profiles of the type goroutine of the last two weeks."
    assert none in visitor.page("/ui/", type="goroutine").text


def test_the_overview_names_what_measures_something_else_and_says_that_all_is_zero(visitor: Visitor) -> None:
    text = visitor.page("/ui/", type="heap").text
    assert "allocator measures something else than inuse_space, and is not in it." in text
    assert "All that these services measured is 0." in text
    assert "All that these" not in visitor.page("/ui/").text


def test_a_list_that_is_cut_says_so(visitor: Visitor) -> None:
    page = visitor.page("/ui/", type="other")
    assert section(page, "Stopped sending").endswith("and 2 more")


def test_a_tracker_that_saw_nothing_is_said(visitor: Visitor) -> None:
    word = "There is no wait in these profiles."
    assert word in visitor.page("/ui/services/idle/latency", type="offcpu").text
    assert word not in visitor.page("/ui/services/db/latency", type="offcpu").text


def test_a_live_page_without_a_match_is_told_from_one_of_a_new_service(visitor: Visitor) -> None:
    page = visitor.page("/ui/services/shop/live", 404, labels="instance=none")
    assert "No profile matches the selection." in page.text
    assert "There is no profile yet." in visitor.page("/ui/services/new/live", 404).text


def test_the_live_page_counts_what_it_shows(visitor: Visitor) -> None:
    of_all, live = (facts(visitor.page(f"/ui/services/shop{page}")) for page in ("", "/live"))
    assert (of_all["Profiles"], of_all["Hosts"], of_all["Versions"], of_all["Stacks"]) == ("3", "3", "3", "3")
    assert live["Profiles"] == "1 of 3 selected"
    assert (live["Hosts"], live["Versions"], live["Stacks"]) == ("1", "1", "1")
    assert live["Newest"] == live["Oldest"] == of_all["Newest"] != of_all["Oldest"]
    assert live["Profiled for"] == "1.00 s"
    assert facts(visitor.page("/ui/services/empty/live", type="heap"))["Profiles"] == "1"


def test_samples_are_what_was_counted_and_stacks_are_rows(visitor: Visitor) -> None:
    page = visitor.page("/ui/services/shop", sample_type="samples")
    assert "Samples" not in facts(page)
    assert facts(page)["Stacks"] == "3"
    assert "samples, 10 at most" in page.text


@pytest.mark.parametrize(
    "path", ["", "/live", "/top", "/function?function=main.keep", "/series?function=main.keep"]
)
def test_zeros_are_said(visitor: Visitor, path: str) -> None:
    query = {"type": "heap", "sample_type": "inuse_space"}
    path, _, function = path.partition("?function=")
    page = visitor.page(
        f"/ui/services/empty{path}", 200, **query, **({"function": function} if function else {})
    )
    assert NOTHING in page.text
    assert "all values of inuse_space are 0" in page.text  # the timeline
    full = visitor.page(f"/ui/services/empty{path}", type="heap", sample_type="alloc_space")
    assert "All values of" not in full.text


def test_zeros_are_said_in_the_file_and_in_a_difference(visitor: Visitor) -> None:
    query = {"type": "heap", "sample_type": "inuse_space"}
    assert f">{NOTHING}</text>" in visitor.get("/ui/services/empty/flame.svg", None, **query).text
    assert NOTHING in visitor.page("/ui/services/empty/diff", 200, **query, base_last="30d").text


@pytest.mark.parametrize("path", ["", "/live", "/top"])
def test_what_filters_leave_out_is_not_called_zero(visitor: Visitor, path: str) -> None:
    page = visitor.page(f"/ui/services/shop{path}", focus="nowhere")
    assert "The filters leave no stack with a value of cpu." in page.text
    assert "All values of" not in page.text


def test_a_function_that_filters_leave_out_is_not_called_unknown(visitor: Visitor) -> None:
    page = visitor.page("/ui/services/shop/function", 404, function="main.of1", focus="of2")
    assert "No function in the selection that the filters leave is named main.of1." in page.text
    page = visitor.page("/ui/services/shop/function", 404, function="main.of7")
    assert "No function in the selection is named main.of7. Did you mean" in page.text


def test_a_name_that_no_profile_has_is_no_line_at_zero_without_a_word(visitor: Visitor) -> None:
    page = visitor.page("/ui/services/shop/series", function="main.gone")
    assert "No stack of these profiles has it." in page.text
    assert "No stack of these" not in visitor.page("/ui/services/shop/series", function="main.of1").text
    part = {"type": "offcpu", "function": "wait", "latency_from": "10s"}
    page = visitor.page("/ui/services/db/series", 200, **part)
    assert "The filters leave no stack with a value of" in page.text


def test_traces_that_a_filter_leaves_out_are_kept(visitor: Visitor, tmp_path: Path) -> None:
    assert "No trace that is kept matches. Show all" in visitor.page("/ui/traces", service="nobody").text
    with Server(tmp_path) as bare:
        assert "No such traces are kept" in Visitor(bare).page("/ui/traces").text


def test_every_page_of_stacks_says_how_many_profiles_it_is_without(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        for number in (1, 2):
            stacks = {"main.main;main.kept": number}
            assert (
                server.submit(stacked(stacks, time_nanos=number), query={"service": "shop"}).status_code
                == 204
            )
        server.stop()
        damaged = min(server.blobs())
        damaged.chmod(0o600)
        damaged.write_bytes(b"damaged")
        for cache in (server.data / "rows").iterdir():
            cache.unlink()
        server.start()
        visitor, said = Visitor(server), "1 profile had to be left out."
        for path in ("", "/live", "/top", "/function", "/series", "/diff"):
            query = {"function": "main.kept"} if path in {"/function", "/series"} else {}
            page = visitor.page(f"/ui/services/shop{path}", 200, **query)
            assert (said in page.text) == (path not in {"/live", "/diff"}), path
        of_both = visitor.page("/ui/services/shop/diff", base_from="1970-01-01")
        assert "2 profiles had to be left out." in of_both.text
