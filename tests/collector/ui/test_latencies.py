"""The page of latencies: the heat map, the histogram, two windows, and the links to flame graphs."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from pgo_collector.model.times import format_time

from tests.collector.hostile_names import HOSTILE, label_of
from tests.collector.queries.test_histograms import CALM, STORM
from tests.collector.ui.test_pages import assert_ours, calls, rows, titles
from tests.collector.visitor import Page, Visitor
from tests.faults.stacks import DAY, EPOCH
from tests.merge.stacked import stacked
from tests.merge.tracked import MS, US, Events, delayed, tracked
from tests.server import Server

pytestmark = pytest.mark.any_store

HOUR = DAY // 24
MIDNIGHT = EPOCH - EPOCH % DAY
PATH = "/ui/services/waits/latency"


@pytest.fixture(scope="module")
def site(shared: Server) -> Visitor:
    """Store two calm hours and a storm of one service, which also has a CPU profile."""
    for hour, profile in enumerate((CALM, CALM, STORM)):
        query = {"service": "waits", "type": "offcpu", "labels": f"instance=db-{hour % 2}"}
        content = tracked(profile, time_nanos=MIDNIGHT + hour * HOUR + 1)
        assert shared.submit(content, query=query).status_code == 204
    assert shared.submit(stacked({"main.f": 1}), query={"service": "waits"}).status_code == 204
    assert shared.submit(stacked({"main.f": 1}), query={"service": "no-waits"}).status_code == 204
    return Visitor(shared)


def heat_rows(page: Page) -> dict[str, list[str]]:
    """Return the share and the count of each row that has a wait, by its latency."""
    return {row[0]: row[-2:] for row in rows(page) if len(row) == 4 and row[-1] not in {"Waits", "0", ""}}


def cells(page: Page) -> dict[str, str]:
    """Return the links of the cells, by their titles."""
    found = [tag.text for tag in page.all("title")[1:] if " waits of " in tag.text]
    links = [tag.attributes["href"] for tag in page.all("a", tabindex="-1")]
    return dict(zip(found, links, strict=True))


def test_the_page_has_every_wait_once(site: Visitor) -> None:
    page = site.page(PATH, type="offcpu", step="hour")
    assert heat_rows(page) == {
        "67.1 ms": ["0.49 %", "25"],
        "2.10 ms": ["0.16 %", "8"],
        "1.05 ms": ["2.23 %", "115"],
        "4.10 µs": ["97.1 %", "5,000"],
    }
    assert {title.split("\n")[0]: len(title.split("\n")) for title in cells(page)}.keys() == {
        "25 waits of 67.1 ms to 134 ms",
        "4 waits of 2.10 ms to 4.19 ms",
        "40 waits of 1.05 ms to 2.10 ms",
        "35 waits of 1.05 ms to 2.10 ms",
        "2,000 waits of 4.10 µs to 8.19 µs",
        "1,000 waits of 4.10 µs to 8.19 µs",
    }
    assert len(cells(page)) == 9


def test_a_cell_leads_to_exactly_its_stacks(site: Visitor) -> None:
    page = site.page(PATH, type="offcpu", step="hour")
    (link,) = (link for title, link in cells(page).items() if title.startswith("25 waits"))
    flame = site.page(link)
    assert {*titles(flame)} == {"all", "main", "exec_query", "LWLockAcquire"}
    assert titles(flame)["LWLockAcquire"] == "100.0 %: 1.75 s cumulative, 1.75 s flat"
    assert "Only waits of 67.1 ms or more and of less than 134 ms." in flame.text
    zoomed = site.page(f"/ui/services/waits{calls(flame)['exec_query']}")
    assert "Only waits of 67.1 ms or more" in zoomed.text
    top = site.page(next(link for link in flame.links() if "/top?" in link))
    assert [row[-1] for row in rows(top)[1:]] == ["LWLockAcquire", "exec_query", "main"]
    (everything,) = (tag.attributes["href"] for tag in flame.all("a") if tag.text == "Show all")
    assert "(below the threshold)" in titles(site.page(everything))


def test_a_row_is_of_the_whole_selection(site: Visitor) -> None:
    page = site.page(PATH, type="offcpu", labels="instance=db-0")
    (link,) = (tag.attributes["href"] for tag in page.all("a") if tag.text == "1.05 ms")
    assert parse_qs(urlsplit(link).query)["labels"] == ["instance=db-0"]
    assert titles(site.page(link))["fsync"].startswith("100.0 %: 90.0 ms")


def test_the_selections_time_bounds_its_columns(site: Visitor) -> None:
    def times(**bounds: str) -> set[tuple[str, str]]:
        page = site.page(PATH, 200, type="offcpu", step="day", **bounds)
        links = [parse_qs(urlsplit(link).query) for link in cells(page).values()]
        assert links
        assert all("last" not in link for link in links)
        return {(link["from"][0], link["to"][0]) for link in links}

    day, next_day, hour, last_hour = (format_time(MIDNIGHT + nanos) for nanos in (0, DAY, HOUR, 2 * HOUR))
    assert times() == times(from_="2020-01-01", to="2040-01-01") == {(day, next_day)}
    assert times(last="9999d", to=last_hour) == {(day, last_hour)}
    assert times(from_=hour) == {(hour, next_day)}


def test_many_steps_share_columns(server: Server) -> None:
    for day in (0, 700):
        content = tracked(CALM, time_nanos=MIDNIGHT + day * DAY)
        assert server.submit(content, query={"service": "waits", "type": "irq"}).status_code == 204
    page = Visitor(server).page(PATH, type="irq")
    left = {tag.attributes["x"] for tag in page.all("svg", y="0")}
    assert len(left) == 2
    refused = Visitor(server).page(PATH, 400, type="irq", step="hour")
    assert "at most 1,000 are allowed" in refused.text


def test_a_full_heat_map_is_no_larger_page(server: Server) -> None:
    """Cells of many latencies and hours share columns, and so do those with long links."""
    every = [delayed("main;f", 1 << bit) for bit in range(10, 36)]
    for hour in range(100):
        content = tracked(every, time_nanos=MIDNIGHT + hour * HOUR + 1)
        query = {"service": "waits", "type": "offcpu", "labels": "instance=db"}
        assert server.submit(content, query=query).status_code == 204
    visitor = Visitor(server)
    plain = visitor.page(PATH, type="offcpu", step="hour")
    long = visitor.page(PATH, type="offcpu", step="hour", labels=f"version!={'v' * 900}")
    assert len(cells(plain)) > len(cells(long)) > 100
    for page in (plain, long):
        assert len(page.answer.content) < 420_000
        assert sum(int(each[-1]) for each in heat_rows(page).values()) == 2600


def test_two_windows_are_side_by_side(site: Visitor) -> None:
    page = site.page(PATH, type="offcpu")
    (half,) = (
        tag.attributes["href"]
        for tag in page.all("a")
        if tag.text == "the later and the earlier half" and "/diff?" not in tag.attributes["href"]
    )
    both = site.page(half)
    assert "Base" in both.text
    pairs = {
        row[0]: row[1:] for row in rows(both) if len(row) == 4 and row[-1][:1] in {"+", "\N{MINUS SIGN}"}
    }
    assert pairs["67.1 ms"] == ["0.00 %", "0.81 %", "+0.81"]
    (difference,) = (
        tag.attributes["href"] for tag in both.all("a") if tag.text == "the difference of the flame graphs"
    )
    assert "LWLockAcquire" in titles(site.page(difference))
    (row,) = (tag.attributes["href"] for tag in both.all("a", title=_DIFFERENCE) if tag.text == "1.05 ms")
    assert {*titles(site.page(row))} == {"all", "main", "XLogFlush", "fsync"}


_DIFFERENCE = "Difference of the flame graphs of these waits"


@pytest.mark.parametrize(
    ("query", "status", "problem"),
    [
        ({"base_service": "waits"}, 400, "the selection itself"),
        ({"base_labels": "instance=none"}, 404, "no stored profile"),
        ({"base_service": "no-waits"}, 404, "no stored profile"),
        ({"base_from": "soon"}, 400, "not a time"),
    ],
)
def test_what_is_wrong_with_a_base_is_said(
    site: Visitor, query: dict[str, str], status: int, problem: str
) -> None:
    page = site.page(PATH, status, type="offcpu", **query)
    (alert,) = page.all("p", role="alert")
    assert problem in alert.text
    assert heat_rows(page)


def test_the_link_is_there_where_there_are_latencies(site: Visitor) -> None:
    (link,) = (tag for tag in site.page("/ui/services/waits").all("a") if tag.text == "Latencies")
    assert parse_qs(urlsplit(link.attributes["href"]).query) == {"type": ["offcpu"]}
    assert not [tag for tag in site.page("/ui/services/no-waits").all("a") if tag.text == "Latencies"]
    none = site.page(PATH, 422)
    assert "Profiles of type cpu don't say how long anything took" in none.text
    assert site.page(next(link for link in none.links() if "type=offcpu" in link))
    assert "No matching profiles" in site.page(PATH, 404, type="irq").text
    assert site.page("/ui/services/waits/latency", 400, type="offcpu", step="week").all("h1")


def test_a_download_can_be_of_some_latencies(site: Visitor, shared: Server) -> None:
    query = {"type": "offcpu", "latency_from": "1ms", "format": "folded"}
    answer = site.get("/ui/services/waits/merge", None, **query)
    assert answer.content == shared.merge(query={"service": "waits", **query}).content


@pytest.mark.exhaustive
def test_no_hostile_profile_breaks_the_page(server: Server) -> None:
    most = (1 << 63) - 1
    hostile = [
        *(delayed(f"main;{name.replace(';', ':')}", 7 * MS) for name in HOSTILE),
        Events("main;f", most, most, most),
        Events("main;f", None, 9, 9),
        *(delayed("main;f", 100 * US, pid=pid) for pid in range(5_000)),
    ]
    for at, name in enumerate(HOSTILE):
        query = {"service": "waits", "type": "offcpu", "labels": label_of(name)}
        content = tracked(hostile, time_nanos=MIDNIGHT + at * HOUR)
        assert server.submit(content, query=query).status_code == 204
    last = tracked(CALM, time_nanos=most)
    assert server.submit(last, query={"service": "waits", "type": "wakeup"}).status_code == 204
    visitor = Visitor(server)
    for query in ({"type": "offcpu"}, {"type": "offcpu", "base_labels": label_of(HOSTILE[0])}):
        page = visitor.page(PATH, 200, **query)
        assert_ours(page)
        assert "waits have no latency" in page.text
        for link in page.links():
            if link.startswith("/ui/services/"):
                # The timeline leads to earlier times as well, from which there is no profile.
                is_of_a_time = "&from=" in link or "&last=" in link
                assert visitor.get(link).status_code in ({200, 404} if is_of_a_time else {200}), link
    assert visitor.page(PATH, type="wakeup").all("svg", y="0")
