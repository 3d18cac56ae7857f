"""Conditions on labels: SQL selects and counts what a plain filter does, and their text is read back."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from hypothesis import given, settings
from hypothesis import strategies as st
from pgo_collector.catalog.catalog import Catalog
from pgo_collector.catalog.sqlite import SQLite
from pgo_collector.catalog.summaries import LabelValue, Summaries
from pgo_collector.http.auth import context_of
from pgo_collector.http.selections import selection_of
from pgo_collector.model.facts import Facts
from pgo_collector.model.selection import Matcher, Selection
from pgo_collector.model.series import BlobName, Identity, Series
from starlette.requests import Request

_KEYS = ["k", "l,=!|%", "other"]
# Characters with a meaning in the language, in SQL's patterns, or in neither.
_VALUES = st.text("aB,=!|%_é<", min_size=1, max_size=3)
_STORED = st.lists(st.dictionaries(st.sampled_from(_KEYS[:2]), _VALUES, max_size=2), min_size=1, max_size=6)
_MATCHERS = st.builds(
    Matcher,
    st.sampled_from(_KEYS),
    st.frozensets(_VALUES | st.just(""), min_size=1, max_size=3),
    st.booleans(),
)


def fits(labels: Mapping[str, str], matcher: Matcher) -> bool:
    return (labels.get(matcher.key, "") in matcher.values) != matcher.is_negated


def read(matchers: list[Matcher]) -> Selection:
    """Return the selection that the API reads from the text of conditions."""
    query = urlencode({"labels": ",".join(matcher.text for matcher in matchers)})
    request = Request({"type": "http", "method": "GET", "headers": [], "query_string": query.encode()})
    context_of(request).service = "s"
    return selection_of(request)


@settings(deadline=None)
@given(_STORED, st.lists(_MATCHERS, max_size=3), _VALUES)
def test_a_selection_is_that_of_a_plain_filter(
    stored: list[dict[str, str]], matchers: list[Matcher], search: str
) -> None:
    selection = read(matchers)
    assert [*selection.matchers] == matchers
    expected = [
        (at, labels) for at, labels in enumerate(stored) if all(fits(labels, matcher) for matcher in matchers)
    ]
    with tempfile.TemporaryDirectory() as folder, closing(SQLite(Path(folder) / "catalog")) as database:
        database.open()
        catalog = Catalog(database)
        for at, labels in enumerate(stored):
            name = BlobName(Series("s", "cpu", tuple(sorted(labels.items()))), Identity(at, f"{at:064x}"))
            catalog.add((name, Facts(at, 1, f"{at:064x}", 1, 1)))
        found = [blob.name.identity.time_nanos for blob in catalog.live(selection)]
        assert sorted(found) == [at for at, _ in expected]
        summaries = Summaries(catalog)
        for key in _KEYS:
            times: dict[str, list[int]] = {}
            for at, labels in expected:
                if key in labels:
                    times.setdefault(labels[key], []).append(at)
            values = summaries.label_values(selection, key, 100)
            assert {*values.listed} == {
                LabelValue(value, len(of), min(of), max(of)) for value, of in times.items()
            }
            assert values.count == len(times)
            numbers = [value.profiles for value in values.listed]
            assert numbers == sorted(numbers, reverse=True)
            assert summaries.label_values(selection, key, 1).count == len(times)
            searched = summaries.label_values(selection, key, 100, search)
            # SQL knows the cases of ASCII alone.
            assert {value.text for value in searched.listed} == {
                value for value in times if search.lower() in value.lower()
            }
            assert summaries.without_label(selection, key) == sum(key not in labels for _, labels in expected)
        assert summaries.steps(selection, 0, 2) == Counter(at // 2 for at, _ in expected)


@given(_MATCHERS)
def test_the_opposite_of_a_condition_has_all_others(matcher: Matcher) -> None:
    for value in ("", "a", *matcher.values):
        labels = {matcher.key: value} if value else {}
        assert fits(labels, matcher) != fits(labels, matcher.negated())
