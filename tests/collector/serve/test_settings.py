from __future__ import annotations

from pathlib import Path

import pytest
from pgo_collector.errors import SettingsInvalid
from pgo_collector.settings import Settings, read_settings, split_address
from pydantic import HttpUrl

from tests.server import Server

pytestmark = pytest.mark.any_store


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the collector's variables from the environment."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PGOF_{name.upper()}", raising=False)


def test_the_defaults_are_pgo_fleets() -> None:
    settings = read_settings()
    assert settings.bind_address == "127.0.0.1:8080"
    assert settings.directory == Path("./profiles")
    assert settings.submit_auth_keys_file == Path("/secret/submit_keys")
    assert settings.merge_auth_keys_file == Path("/secret/merge_keys")
    assert settings.default_service == "default"
    assert settings.limits.compressed_bytes == 8 << 20
    assert settings.limits.inflated_bytes == 8 << 20


def test_every_setting_has_a_variable_and_a_help(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "bind_address": ":9",
        "directory": Path("/data"),
        "catalog": "postgresql://db",
        "catalog_connections": 41,
        "catalog_connect_seconds": 42.0,
        "catalog_statement_seconds": 43.0,
        "submit_auth_keys_file": Path("/s"),
        "merge_auth_keys_file": Path("/m"),
        "default_service": "shop",
        "live_streams": 41,
        "capture_targets": "shop=http://a/b",
        "capture_seconds": 42.5,
        "captures": 43,
        "capture_ca_file": Path("/ca"),
        "capture_keys_file": Path("/c"),
        "selection_characters": 44,
        "pattern_seconds": 45.5,
        "rules_dir": Path("/rules"),
        "release_overlap": 0.5,
        "release_days": 0.25,
        "release_check_seconds": 0.0,
        "releases_kept": 1,
        "max_compressed_bytes": 1,
        "max_inflated_bytes": 2,
        "max_name_bytes": 5,
        "push_profiles": 18,
        "query_labels": 19,
        "query_nodes": 20,
        "query_points": 21,
        "otlp_profiles": 19,
        "otlp_labels": "host.*",
        "otlp_sample_labels": "thread.id",
        "join_seconds": 2.25,
        "storage": "s3://bucket/a/prefix",
        "storage_seconds": 41.5,
        "storage_requests": 42,
        "symbols_bytes": 38,
        "symbols_functions": 39,
        "symbols_builds": 40,
        "binary_bytes": 44,
        "binary_seconds": 45.0,
        "binaries_kept": 46,
        "bulk": "dask+tls://cluster:8786",
        "bulk_blobs": 47,
        "binaries_megabytes": 47.0,
        "binary_days": 48.0,
        "grpc_address": ":4317",
        "grpc_calls": 20,
        "grpc_connections": 35,
        "grpc_connection_seconds": 36.0,
        "max_output_bytes": 6,
        "workers": 3,
        "rows_megabytes": 4,
        "worker_megabytes": 14,
        "task_seconds": 15.0,
        "body_cpu_seconds": 16.5,
        "min_chunk_bytes": 45,
        "retention_share": 0.5,
        "min_free_megabytes": 16.0,
        "incoming_megabytes": 17.5,
        "merges_kept": 5,
        "rollup_days": 6.5,
        "rollup_labels": "version,a%2Cb",
        "keep_days": 7.0,
        "keep_megabytes": 8.0,
        "keep_combined_days": 9.0,
        "keep_combined_megabytes": 10.0,
        "upkeep_seconds": 11.0,
        "quota_profiles": 12.0,
        "quota_megabytes": 13.0,
        "profefe_open": True,
        "datadog_open": True,
        "autopgo_open": True,
        "webhook_url": HttpUrl("https://example.org/events"),
        "webhook_secret_file": Path("/w"),
        "webhook_timeout": 2.5,
        "webhook_days": 0.5,
        "webhook_events_kept": 7,
        "metrics_auth_keys_file": Path("/k"),
        "metrics_open": True,
        "session_hours": 1.5,
        "session_secret_file": Path("/secret/sessions"),
        "copies_megabytes": 48.5,
        "max_header_bytes": 14,
        "max_headers": 15,
        "max_url_bytes": 16,
        "head_timeout": 1.75,
        "idle_timeout": 17.5,
        "answer_timeout": 18.5,
        "max_connections": 19,
        "max_connections_per_address": 20.0,
        "body_memory_bytes": 21,
        "sign_in_attempts": 22.0,
        "sign_in_wait": 23.0,
        "body_timeout": 0.5,
        "trace_keys_file": Path("/t"),
        "trace_rate": 0.25,
        "trace_parts": "http, store",
        "trace_values": True,
        "trace_osprofiler": False,
        "trace_window": 24.0,
        "trace_spans": 25,
        "traces_waiting": 26,
        "trace_days": 27.0,
        "trace_otlp_url": HttpUrl("http://127.0.0.1:4318/v1/traces"),
        "trace_megabytes": 28.0,
        "trace_steps": 29,
        "trace_step_seconds": 30.0,
        "label_values": 41,
        "timeline_steps": 42,
        "pages_megabytes": 43.5,
        "source_links": "main=https://example.org/{version}/{path}#L{line}",
        "log_level": "error",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"PGOF_{name.upper()}", str(value))
    assert read_settings().model_dump() == values
    assert read_settings().labels_of_rollups == {"version", "a,b"}
    assert read_settings().traced_parts == {"http", "store"}
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        (":8080", ("", 8080)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("BIND_ADDRESS", value)
            for value in ("", "8080", "host", "host:", "host:x", "::1:80", "h:65536", "h:-1")
        ),
        *(("DEFAULT_SERVICE", value) for value in ("", "../up", "a/b", ".hidden", "x" * 201)),
        *(
            (name, value)
            for name in ("WORKERS", "MAX_INFLATED_BYTES", "BODY_TIMEOUT", "RELEASES_KEPT")
            for value in ("0", "many")
        ),
        *(("RELEASE_OVERLAP", value) for value in ("-0.1", "1.1", "nan", "half")),
        *(
            (name, value)
            for name in ("RELEASE_DAYS", "RELEASE_CHECK_SECONDS")
            for value in ("-1", "nan", "long")
        ),
        *(
            (name, "9" * 20)
            for name in ("MAX_COMPRESSED_BYTES", "MAX_INFLATED_BYTES", "MERGES_KEPT", "WEBHOOK_EVENTS_KEPT")
        ),
        ("LOG_LEVEL", "loud"),
        ("TRACE_PARTS", "http,disk"),
        ("TRACE_RATE", "1.1"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"PGOF_{name}", value)
    with pytest.raises(SettingsInvalid, match=f"PGOF_{name}: "):
        read_settings()


def test_a_bad_value_ends_the_process_with_a_message(stopped: Server) -> None:
    stopped.environment["PGOF_WORKERS"] = "many"
    finished = stopped.run("serve")
    assert finished.returncode == 2
    assert finished.stderr.startswith("pgo-collector: PGOF_WORKERS: ")
    assert "Traceback" not in finished.stderr


def test_an_address_in_use_ends_the_process_with_a_message(stopped: Server, tmp_path: Path) -> None:
    with Server(tmp_path / "other") as other:
        address = other.base_url.removeprefix("http://")
        stopped.environment["PGOF_BIND_ADDRESS"] = address
        finished = stopped.run("serve")
    assert finished.returncode == 2
    assert f"address {address}: " in finished.stderr


def test_help_lists_every_setting(stopped: Server) -> None:
    shown = stopped.run("--help").stdout
    for name in Settings.model_fields:
        assert f"PGOF_{name.upper()}" in shown
