"""Flame graphs whose first calls are the values of a label, of the profiles or of their samples."""

from __future__ import annotations

from typing import Any

import pytest
from pprof_merge.analysis import MOST_GROUPS

from tests.collector.conftest import PROFILES
from tests.collector.own_service import OwnService
from tests.collector.queries.test_queries import asked, refused
from tests.collector.visitor import Visitor
from tests.faults.stacks import EPOCH, SECOND
from tests.merge.stacked import heap_of, stacked

pytestmark = pytest.mark.any_store


def store(own: OwnService, stacks: dict[str, int], number: int = 0, **labels: str) -> None:
    profile = stacked(stacks, time_nanos=EPOCH + number * SECOND)
    text = ",".join(f"{key}={value}" for key, value in labels.items())
    assert own.submit(profile, query={"labels": text}).status_code == 204


def flame(own: OwnService, **query: str) -> dict[str, Any]:
    return asked(own, "/v1/flame", sample_type="samples", limit="1000", **query)


def below(answer: dict[str, Any], call: int = 0) -> dict[str, int]:
    """Return the cumulative values of the calls below a call."""
    return {each["name"]: each["cum"] for each in answer["calls"] if each["parent"] == call}


def test_the_first_calls_are_the_values_of_a_label(own: OwnService) -> None:
    store(own, {"main;work": 10, "main": 1}, version="1", instance="a")
    store(own, {"main;work": 20}, version="1", instance="b")
    store(own, {"main;work": 5, "idle": 2}, version="2", instance="a")
    store(own, {"main;old": 3})
    plain, grouped = flame(own), flame(own, group="version")
    assert below(grouped) == {"version=1": 31, "version=2": 7, "without version": 3}
    assert below(grouped, 1) == {"main": 31}
    assert (grouped["total"], grouped["whole"]) == (plain["total"], plain["whole"]) == (41, 41)
    assert below(flame(own, group="instance")) == {"instance=a": 18, "instance=b": 20, "without instance": 3}
    # The selection, patterns and the zoom work as without it.
    assert below(flame(own, group="instance", labels="version=1")) == {"instance=a": 11, "instance=b": 20}
    assert below(flame(own, group="version", ignore="work")) == {
        "version=1": 1,
        "version=2": 2,
        "without version": 3,
    }
    (key,) = (call["key"] for call in grouped["calls"] if call["name"] == "version=2")
    zoomed = flame(own, group="version", root=key)
    assert zoomed["calls"][zoomed["root"]]["name"] == "version=2"
    assert {call["name"] for call in zoomed["calls"]} == {"", "version=2", "main", "idle", "work"}


def test_samples_are_grouped_by_labels_of_their_own(own: OwnService) -> None:
    for file in sorted(PROFILES.glob("apisvc-v1lab-*")):
        assert own.submit(file.read_bytes(), query={"labels": "version=1"}).status_code == 204
    grouped = flame(own, group="endpoint")
    groups = below(grouped)
    assert {"endpoint=re", "endpoint=gz", "without endpoint"} < groups.keys()
    assert sum(groups.values()) == grouped["total"]
    assert below(flame(own, group="no such")) == {"without no such": grouped["total"]}


def test_two_selections_are_compared_in_groups(own: OwnService) -> None:
    store(own, {"main;work": 10}, version="1", region="eu")
    store(own, {"main;work": 30}, version="1", region="us")
    store(own, {"main;work": 20}, version="2", region="eu")
    answer = flame(own, group="region", labels="version=2", base_labels="version=1")
    calls = {each["name"]: (each["cum"], each["base_cum"]) for each in answer["calls"] if each["parent"] == 0}
    assert calls == {"region=eu": (20, 10), "region=us": (0, 30)}


def test_a_state_is_the_mean_of_each_instance_of_a_group(own: OwnService) -> None:
    for number, (version, held) in enumerate((("1", 10), ("1", 30), ("2", 100))):
        profile = heap_of({"main": (1, 1, held, held)}, time_nanos=EPOCH + number * 60 * SECOND)
        labels = f"version={version},instance=i{version}"
        assert own.submit(profile, query={"type": "heap", "labels": labels}).status_code == 204
    answer = asked(own, "/v1/flame", type="heap", sample_type="inuse_space", group="version")
    assert below(answer) == {"version=1": 20, "version=2": 100}
    assert answer["basis"]["kind"] == "state"


def test_only_the_largest_groups_have_calls_of_their_own(own: OwnService) -> None:
    for number in range(MOST_GROUPS + 3):
        store(own, {"main": 1}, number, build=f"b{number}")
    store(own, {"main": 1}, MOST_GROUPS + 4, build="b7")
    groups = below(flame(own, group="build"))
    assert len(groups) == MOST_GROUPS
    assert (groups["build=b7"], groups["other values of build"]) == (2, 4)


def test_a_key_that_is_too_long_is_refused(own: OwnService) -> None:
    store(own, {"main": 1})
    assert "longer than" in refused(own, "/v1/flame", 400, group="k" * 201)
    assert below(flame(own, group="<b>")) == {"without <b>": 1}


def test_the_page_groups_by_the_labels_that_there_are(own: OwnService) -> None:
    store(own, {"main;work": 10}, version="1", instance="a")
    store(own, {"main;work": 20}, version="2", instance="a")
    visitor = Visitor(own)
    path = f"/ui/services/{own.service}"
    page = visitor.page(path)
    offered = [link for link in page.links() if "group=" in link]
    assert {link.partition("group=")[2].partition("&")[0] for link in offered} == {"instance", "version"}
    grouped = visitor.page(path, group="version")
    titles = [tag.text for tag in grouped.all("title") if tag.text.startswith("version=")]
    assert len(titles) == 2
    assert "version=1" in visitor.get(f"{path}/flame.svg", group="version").text
    hostile = visitor.page(path, group='"><script>')
    assert not hostile.all("script", src="") or "<script>" not in hostile.answer.text.split("</head>")[1]
