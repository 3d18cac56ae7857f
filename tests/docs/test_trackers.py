"""A latency tracker has one description, in the agent. What the collector and the docs say of it agrees."""

from __future__ import annotations

from pgo_agent.latency import TRACKERS
from pgo_collector.model.profile_types import LATENCY_TYPES
from pgo_collector.ui.selection_bar import MEANINGS

from tools.site.reference.trackers import PAGE, trackers_table

_COLLECTOR = "LATENCY_TYPES in collector/pgo_collector/model/profile_types.py"
_AGENT = "TRACKERS in agent/pgo_agent/latency/trackers"


def test_each_tracker_has_its_type_in_the_collector() -> None:
    titles = {tracker.profile_type: tracker.title for tracker in TRACKERS.values()}
    assert len(titles) == len(TRACKERS), f"two of {_AGENT} have the same type"
    faults = [
        *(f"{type_!r} is missing in {_COLLECTOR}" for type_ in titles.keys() - LATENCY_TYPES.keys()),
        *(f"{type_!r} is missing in {_AGENT}" for type_ in LATENCY_TYPES.keys() - titles.keys()),
        *(
            f"{type_!r} is {titles[type_]!r} in {_AGENT}, and {LATENCY_TYPES[type_]!r} in {_COLLECTOR}"
            for type_ in titles.keys() & LATENCY_TYPES.keys()
            if titles[type_] != LATENCY_TYPES[type_]
        ),
    ]
    assert not faults, "\n".join(sorted(faults))
    assert [*titles] == [*LATENCY_TYPES], f"{_AGENT} and {_COLLECTOR} have another order"


def test_the_pages_show_what_each_tracker_is_called() -> None:
    faults = [
        f"{tracker.profile_type!r} is {MEANINGS.get(tracker.profile_type)!r} on the pages (MEANINGS in"
        f" collector/pgo_collector/ui/selection_bar.py), and {tracker.title!r} in {_AGENT}"
        for tracker in TRACKERS.values()
        if MEANINGS.get(tracker.profile_type) != tracker.title
    ]
    assert not faults, "\n".join(faults)


def test_the_documentation_has_each_tracker() -> None:
    text = PAGE.read_text()
    missing = [row for row in trackers_table().splitlines() if row not in text.splitlines()]
    assert not missing, f"docs/{PAGE.name} lacks these rows; call `make docs`:\n" + "\n".join(missing)
    assert trackers_table() in text, f"docs/{PAGE.name} has rows that no tracker has; call `make docs`"
