"""A key reads the same, byte by byte, whatever is stored of services that it isn't for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.collector.application import application
from tests.collector.scopes import NOT_ASKED, differences, questions, routes_of, stores, words

_NO_ARROW = "profiles as records of Arrow aren't read by any version"
_NO_PROGRAMS = "is about a program that is uploaded, and none is"
_NONE = "stands for methods that no version has"
# Routes that refuse every request.
UNANSWERED = {
    "GET /": "leads a browser to the pages, and is nothing to others",
    "GET /v1/binaries/{build_id}": _NO_PROGRAMS,
    "POST /debuginfo.v1alpha1.DebuginfoService/UploadFinished": _NO_PROGRAMS,
    "POST /parca.debuginfo.v1alpha1.DebuginfoService/InitiateUpload": _NO_PROGRAMS,
    "POST /parca.debuginfo.v1alpha1.DebuginfoService/MarkUploadFinished": _NO_PROGRAMS,
    "POST /parca.profilestore.v1alpha1.ProfileStoreService/Write": _NO_ARROW,
    "POST /parca.profilestore.v1alpha1.ProfileStoreService/WriteArrow": _NO_ARROW,
    **{
        f"GET /ui/file/services/{{service}}{page}": "is about a file that is open, and none is"
        for page in ("", "/top", "/function", "/diff", "/merge", "/flame.svg")
    },
    "POST /querier.v1.QuerierService/{method}": _NONE,
    "POST /settings.v1.SettingsService/{method}": _NONE,
}

# Routes that lead elsewhere, whatever is asked.
REDIRECTS = {"GET /ui", "GET /ui/services/{service}/choose"}


def test_reading_routes_answer_the_same_with_and_without_other_services(tmp_path: Path) -> None:
    """It may take half a minute: all routes are asked several questions, by two keys, in two stores."""
    random = Random(46)  # noqa: S311 - nothing secret
    known, routes = words(random), routes_of(application(tmp_path))
    assert {*NOT_ASKED} <= {*routes}
    counts: Counter[str] = Counter()
    with stores(tmp_path, known) as (alone, beside):
        found = [*differences(alone, beside, questions(routes, known, random, 3), counts)]
    assert not found, "\n".join(map(str, found))
    answered = {route for route in routes if counts[f"{route} 200"]}
    redirected = {route for route in routes if any(counts[f"{route} {status}"] for status in (303, 307))}
    assert redirected - answered == REDIRECTS
    assert {*routes} - {*NOT_ASKED} - answered - REDIRECTS == {*UNANSWERED}
