"""A key reads the same, byte by byte, whatever is stored of services that it isn't for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.collector.application import application
from tests.collector.scopes import NOT_ASKED, differences, questions, routes_of, stores, words

# Routes that have no answer here: to measure latencies, to trace, or because they aren't offered.
UNANSWERED = {
    "GET /api/0/profiles/{ids}/",
    "GET /ui/services/{service}/latency",
    "GET /ui/traces/{trace}",
    "GET /v1/heatmap",
    "GET /v1/histogram",
    "GET /v1/traces/{trace}",
    "POST /parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload",
    "POST /parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished",
    "POST /parca.debuginfo.v1alpha1.DebuginfoService/Upload",
    "POST /parca.profilestore.v1alpha1.ProfileStoreService/Write",
    "POST /parca.profilestore.v1alpha1.ProfileStoreService/WriteArrow",
    "POST /querier.v1.QuerierService/{method}",
    "POST /settings.v1.SettingsService/{method}",
}


def test_reading_routes_answer_the_same_with_and_without_other_services(tmp_path: Path) -> None:
    """It may take half a minute: all routes are asked several questions, by two keys, in two stores."""
    random = Random(46)  # noqa: S311 - nothing secret
    known, routes = words(random), routes_of(application(tmp_path))
    assert {*NOT_ASKED} <= {*routes}
    counts: Counter[str] = Counter()
    with stores(tmp_path, known) as (alone, beside):
        found = [*differences(alone, beside, questions(routes, known, random, 3), counts)]
    assert not found, "\n".join(map(str, found))
    answered = {route for route in routes if any(counts[f"{route} {status}"] for status in (200, 303, 307))}
    assert {*routes} - {*NOT_ASKED} - answered == UNANSWERED
