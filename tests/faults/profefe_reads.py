"""Reads through profefe's routes, compared with the model: lists, merges, and profiles by id."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.collector.profefe import MERGE, PROFILES, assert_error, get, listed
from tests.faults.lane import tallied
from tests.faults.model import Blob, Model, Query, Sent, written
from tests.faults.stacks import tally
from tests.server import Server


def check_reads(server: Server, model: Model, query: Query, most: int) -> dict[Sent, str]:
    """Check the list, its profiles one by one, and their merge, for all of them and with a limit of `most`.

    Returns the ids of the profiles that are stored by themselves.
    """
    entries, blobs = listed(server, **query.profefe), model.selected(query)
    assert Counter(map(_place, entries)) == Counter(map(_place_of, blobs))
    times = [entry["created_at"] for entry in entries]
    assert times == sorted(times)
    of_any_type = listed(server, **query.profefe | {"type": ""})
    assert [entry for entry in of_any_type if entry["type"] == query.type] == entries
    merged = get(server, MERGE, **query.profefe)
    assert tallied(merged) == model.merge(query)
    assert merged.headers.get("PGO-Coarse", "") == model.coarse(query)
    tallies = [tally(get(server, f"{PROFILES}/{entry['id']}").content) for entry in entries]
    assert Counter(map(_frozen, tallies)) == Counter(_frozen(blob.tally) for blob in blobs)
    oldest = max(0, len(entries) - most)
    _check_newest(server, query, entries[oldest:], sum(tallies[oldest:], Counter()))
    ids = {(_place(entry), _frozen(of)): entry["id"] for entry, of in zip(entries, tallies, strict=True)}
    single = [blob for blob in blobs if not blob.is_combined]
    return {blob.profiles[0]: ids[_place_of(blob), _frozen(blob.tally)] for blob in single}


def check_id(server: Server, model: Model, sent: Sent, id_: str) -> None:
    """Check the answer for an id that a profile had by itself."""
    answer, blob = get(server, f"{PROFILES}/{id_}"), model.blob_of(sent)
    if blob is None:
        assert_error(answer, 404, "nothing found")
    elif blob.is_combined:
        assert_error(answer, 404, "combined into another")
        now = answer.json()["error"].split()[-1]
        assert tallied(get(server, f"{PROFILES}/{now}")) == blob.tally
    else:
        assert tallied(answer) == blob.tally


def _check_newest(server: Server, query: Query, newest: list[dict[str, Any]], expected: Counter[str]) -> None:
    """Check a list with a `limit`, and the merge of its ids."""
    if newest:
        limited = query.profefe | {"limit": f"{len(newest)}"}
        assert listed(server, **limited) == newest
        merged = get(server, MERGE, **limited)
        assert tallied(merged) == expected
        together = get(server, f"{PROFILES}/{'+'.join(entry['id'] for entry in newest)}")
        assert tallied(together) == expected
        if len(newest) > 1:
            assert together.content == merged.content


def _place(entry: dict[str, Any]) -> tuple[str, frozenset[str]]:
    """Return time and labels of a profile in a list."""
    labels = entry.get("labels", [])  # left out when empty, as profefe does
    return entry["created_at"], frozenset(f"{label['key']}={label['value']}" for label in labels)


def _place_of(blob: Blob) -> tuple[str, frozenset[str]]:
    return written(blob.begin), blob.series.labels


def _frozen(tallied: Counter[str]) -> frozenset[tuple[str, int]]:
    return frozenset(tallied.items())
