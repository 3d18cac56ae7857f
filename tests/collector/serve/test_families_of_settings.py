"""Settings that follow others: what they are today, how they grow, and that refusals name what to raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pgo_collector
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgo_collector.errors import SettingsInvalid
from pgo_collector.settings import BASIC, MASTERS, SHOWN, Settings, read_settings
from pgo_collector.settings import families as rules

pytestmark = pytest.mark.any_store

# What each follower is as long as its master has its default. Of the memory, the machine decides.
DEFAULTS = {
    "catalog_connect_seconds": 5,
    "catalog_statement_seconds": 60,
    "profefe_open": False,
    "datadog_open": False,
    "autopgo_open": False,
    "merges_kept": 500,
    "max_compressed_bytes": 8 << 20,
    "max_name_bytes": 32 << 10,
    "push_profiles": 100,
    "otlp_profiles": 1000,
    "symbols_bytes": 32 << 20,
    "symbols_functions": 200_000,
    "min_free_megabytes": 64,
    "binaries_megabytes": 2048,
    "shared_megabytes": 10_240,
    "copies_megabytes": 2048,
    "incoming_megabytes": 1024,
    "pages_megabytes": 16,
    "body_memory_bytes": 64 << 20,
    "binary_seconds": 60,
    "body_cpu_seconds": 5,
    "pattern_seconds": 5,
    "join_seconds": 60,
    "release_check_seconds": 60,
    "grpc_connections": 1024,
    "grpc_calls": 16,
    "live_streams": 100,
    "head_timeout": 10,
    "idle_timeout": 75,
    "answer_timeout": 60,
    "capture_seconds": 60,
}
_OF_THE_MACHINE = {"rows_megabytes", "worker_megabytes"}
_NUMBERS = sorted(name for name, master in MASTERS.items() if master not in {"open_apis", "memory_megabytes"})
_OF_MEMORY = [*(name for name, master in MASTERS.items() if master == "memory_megabytes"), "max_output_bytes"]


def test_few_settings_are_shown_and_fewer_are_basic() -> None:
    assert len(SHOWN) <= 60
    assert len(BASIC) <= 15
    assert set(BASIC) <= set(SHOWN)
    assert set(MASTERS.values()) <= set(SHOWN)


def test_the_defaults_are_those_of_before() -> None:
    settings = Settings()
    assert DEFAULTS.keys() | _OF_THE_MACHINE == MASTERS.keys()
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS


def test_a_machine_decides_on_the_memory_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_machine(mebibytes: int, workers: int = 2) -> tuple[int, int, int]:
        monkeypatch.setattr(rules, "memory_bytes", lambda: mebibytes << 20)
        settings = Settings(workers=workers)
        return settings.rows_megabytes, settings.worker_megabytes, settings.max_output_bytes

    assert of_machine(512) == (128, 64, (64 << 20) // 3)
    assert of_machine(4096) == (1024, (3276 - 160 - 1024) // 2, 256 << 20)
    assert of_machine(4096, 8) == (1024, (3276 - 160 - 1024) // 8, (261 << 20) // 3)
    assert of_machine(1 << 20) == (1024, 4096, 256 << 20)


@pytest.mark.parametrize("name", _NUMBERS)
@given(times=st.integers(2, 100))
def test_a_follower_grows_with_its_master(name: str, times: int) -> None:
    before, field = Settings(), Settings.fields[name]
    master = MASTERS[name]
    raised = getattr(before, master) * times
    most, top = (inf if each.le is None else each.le for each in (field, Settings.fields[master]))
    after = Settings(**{master: min(raised, top)})
    factor = getattr(after, master) / getattr(before, master)
    assert getattr(after, name) == pytest.approx(min(getattr(before, name) * factor, most))
    assert getattr(after, name) > getattr(before, name)


@given(small=st.integers(1024, 1 << 16), times=st.integers(2, 16))
def test_what_is_kept_and_done_in_memory_follows_the_memory_that_is_set(small: int, times: int) -> None:
    one, other = (Settings(workers=2, memory_megabytes=each) for each in (small, small * times))
    for name in _OF_MEMORY:
        assert getattr(other, name) >= times * getattr(one, name)
    for settings in (one, other):
        kept = settings.rows_megabytes + settings.pages_megabytes + (settings.body_memory_bytes >> 20)
        assert kept + settings.workers * settings.worker_megabytes <= (settings.memory_megabytes or 0)


@pytest.mark.parametrize("name", _NUMBERS)
def test_a_lowered_master_leaves_its_followers_alone(name: str) -> None:
    before = Settings()
    after = Settings(**{MASTERS[name]: max(getattr(before, MASTERS[name]) / 2, 1) // 1})
    assert getattr(after, name) == getattr(before, name)


def test_one_setting_opens_what_clients_without_a_key_use() -> None:
    opened = Settings(open_apis=True, autopgo_open=False)
    assert (opened.profefe_open, opened.datadog_open, opened.autopgo_open) == (True, True, False)
    assert not opened.metrics_open
    assert Settings(datadog_open=True).profefe_open is False


@pytest.mark.parametrize("name", sorted(MASTERS))
def test_a_follower_that_is_set_follows_no_more(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"PGOF_{name.upper()}", "1")
    monkeypatch.setenv("PGOF_UNKNOWN_SETTINGS", "warn")
    settings = read_settings()
    assert getattr(settings, name) == 1
    others = {each: getattr(settings, each) for each in MASTERS if each != name}
    assert {each: DEFAULTS[each] for each in others.keys() & DEFAULTS} == {
        each: value for each, value in others.items() if each in DEFAULTS
    }


def test_only_the_master_is_blamed_for_its_bad_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOF_TASK_SECONDS", "long")
    monkeypatch.setenv("PGOF_WORKERS", "0")
    with pytest.raises(SettingsInvalid) as raised:
        read_settings()
    assert re.findall(r"PGOF_\w+", str(raised.value)) == ["PGOF_WORKERS", "PGOF_TASK_SECONDS"]


def messages() -> Iterator[str]:
    """Yield each text of the collector's code that isn't a docstring, an f-string as one."""
    for file in sorted(Path(pgo_collector.__file__).parent.rglob("*.py")):
        if "settings" in file.parts:
            continue
        nodes = list(ast.walk(ast.parse(file.read_text())))
        inside = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        inside |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in inside:
                yield ast.unparse(node)


def test_a_message_that_names_a_follower_names_its_master() -> None:
    names = re.compile(r"PGOF_([A-Z_]+)")
    silent = [
        text
        for text in messages()
        for name in map(str.lower, names.findall(text))
        if name in MASTERS and MASTERS[name] not in map(str.lower, names.findall(text))
        if name != "min_free_megabytes"  # its messages ask for room on the disk
    ]
    assert silent == []
    named = {name.lower() for text in messages() for name in names.findall(text)}
    assert named - {name.lower() for name in Settings.fields} <= {"", "keep_"}
