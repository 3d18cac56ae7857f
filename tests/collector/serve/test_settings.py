from __future__ import annotations

import math
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from pgo_collector.checks.configuration import check_configuration
from pgo_collector.command.cli import main
from pgo_collector.errors import SettingsInvalid
from pgo_collector.settings import BASIC, MASTERS, SHOWN, Settings, read_settings, split_address
from pgo_collector.settings.fields import FieldsInvalid
from pprof_merge import ENGINE

from tests.server import Server

pytestmark = pytest.mark.any_store


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the collector's variables from the environment."""
    for name in [name for name in os.environ if name.upper().startswith("PGOF_")]:
        monkeypatch.delenv(name)


def test_the_defaults_are_pgo_fleets() -> None:
    settings = Settings()
    assert settings.bind_address == "127.0.0.1:8080"
    assert settings.directory == Path("./profiles")
    assert settings.submit_auth_keys_file == Path("/secret/submit_keys")
    assert settings.merge_auth_keys_file == Path("/secret/merge_keys")
    assert settings.default_service == "default"
    assert settings.limits.compressed_bytes == 8 << 20
    assert settings.limits.inflated_bytes == 8 << 20


def test_keys_are_made_only_where_no_others_can_connect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pgo_collector.settings.settings.SECRETS", tmp_path / "secret")
    settings = read_settings()
    assert settings.makes_keys
    assert settings.submit_auth_keys_file == Path("./profiles/submit_keys")
    assert settings.merge_auth_keys_file == Path("./profiles/merge_keys")
    for name, value in (
        ("BIND_ADDRESS", "[::1]:0"),
        ("BIND_ADDRESS", "localhost:1"),
        ("GRPC_ADDRESS", "127.1.2.3:1"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"PGOF_{name}", value)
            assert read_settings().makes_keys, value
    for name, value in (
        ("PGOF_BIND_ADDRESS", ":8080"),
        ("PGOF_BIND_ADDRESS", "10.0.0.1:8080"),
        ("PGOF_BIND_ADDRESS", "collector.example.org:8080"),
        ("PGOF_GRPC_ADDRESS", ":4317"),
        ("PGOF_SUBMIT_AUTH_KEYS_FILE", "/secret/submit_keys"),
        ("PGOF_MERGE_AUTH_KEYS_FILE", str(tmp_path / "keys")),
        ("LISTEN_FDS", "1"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not read_settings().makes_keys, value
            assert read_settings().submit_auth_keys_file == Path("/secret/submit_keys")
    (tmp_path / "secret").mkdir()
    assert not read_settings().makes_keys


# Values of settings that aren't just a number, a file, or any text.
TEXTS = {
    "bind_address": ":9",
    "bulk": "dask+tls://cluster:8786",
    "capture_targets": "shop=http://a/b",
    "catalog": "postgresql://db",
    "debuginfod_urls": "http://127.0.0.1:8002 https://debuginfod.example.org/",
    "grpc_address": ":4317",
    "log_level": "error",
    "otlp_labels": "host.*",
    "otlp_sample_labels": "thread.id",
    "rollup_labels": "version,a%2Cb",
    "root_path": "/pgo",
    "settings_file": Path(os.devnull),
    "source_links": "main=https://example.org/{version}/{path}#L{line}",
    "storage": "s3://bucket/a/prefix",
    "trace_otlp_url": "http://127.0.0.1:4318/v1/traces",
    "trusted_proxies": "10.0.0.0/8, ::1",
    "unknown_settings": "warn",
    "webhook_url": "https://example.org/events",
}


def another(name: str) -> object:
    """Return a value of a setting that isn't its default."""
    default, kind = getattr(Settings(), name), Settings.fields[name].type
    if name in TEXTS:
        return TEXTS[name]
    if kind is bool:
        return not default
    if kind in {int, float, int | None}:
        numbers = ((float if kind is float else int)(number) for number in (2.5, 1, 64, 1 << 16))
        return next(number for number in numbers if number != default and is_taken(name, number))
    return "shop" if kind is str else Path(f"/{name}")


def is_taken(name: str, value: object) -> bool:
    try:
        Settings(**{name: value})
    except FieldsInvalid:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("PGOF_KEEP_DAY", "did you mean PGOF_KEEP_DAYS?"),
        ("pgof_keep_day", "did you mean PGOF_KEEP_DAYS?"),
        ("PGOF_QQQQQQQQ", "unset it"),
        ("PGOF_WEBHOOK_DAYS", "an event is tried for 3 days; unset it"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "5")
    with pytest.raises(SettingsInvalid) as raised:
        read_settings()
    assert str(raised.value) == f"{name} isn't a setting: {advice}; or set PGOF_UNKNOWN_SETTINGS=warn"
    assert main(["expired"]) == 2
    assert advice in capsys.readouterr().err
    monkeypatch.setenv("PGOF_UNKNOWN_SETTINGS", "warn")
    assert read_settings().unknown_settings == "warn"


def test_what_kubernetes_says_of_a_service_called_pgof_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "PGOF_SERVICE_HOST": "10.0.0.1",
        "PGOF_SERVICE_PORT": "8080",
        "PGOF_SERVICE_PORT_HTTP": "8080",
        "PGOF_PORT": "tcp://10.0.0.1:8080",
        "PGOF_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "PGOF_PORT_8080_TCP_PROTO": "tcp",
        "PGOF_PORT_8080_TCP_PORT": "8080",
        "PGOF_PORT_8080_TCP_ADDR": "10.0.0.1",
        "PGOF_AT_HOME_SERVICE_HOST": "10.0.0.2",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert not read_settings().unknown_variables


def test_every_setting_has_a_variable_and_a_help(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {name: another(name) for name in Settings.fields}
    for name, value in values.items():
        monkeypatch.setenv(f"PGOF_{name.upper()}", str(value))
    read = read_settings()
    assert {name: getattr(read, name) for name in values} == values
    assert not [name for name, value in values.items() if getattr(Settings(), name) == value]
    assert read_settings().labels_of_rollups == {"version", "a,b"}
    assert all(field.description for field in Settings.fields.values())


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
            for name in ("MAX_COMPRESSED_BYTES", "MAX_INFLATED_BYTES", "MERGES_KEPT", "MAX_CONNECTIONS")
        ),
        ("LOG_LEVEL", "loud"),
        ("TRACE_RATE", "1.1"),
        ("CATALOG", "mysql://db/pgo"),
        *(("STORAGE", value) for value in ("profiles", "s3://", "file:///profiles", "memory:///profiles")),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"PGOF_{name}", value)
    with pytest.raises(SettingsInvalid, match=f"PGOF_{name}: "):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        *(("metrics_open", value, True) for value in (True, 1, "1", "on", "True", "YES")),
        *(("metrics_open", value, False) for value in (False, 0, "0", "off", "f", "No")),
        *(("workers", value, 5) for value in (5, 5.0, "5", " 5 ", "+5", "5.0")),
        *(("keep_days", value, 2.5) for value in (2.5, "2.5", "25e-1")),
        *(("keep_days", value, math.inf) for value in (math.inf, "inf", "Infinity")),
        ("keep_days", 7, 7.0),
        ("memory_megabytes", "64", 64),
        ("trace_keys_file", "/keys", Path("/keys")),
        ("root_path", "/pgo/", "/pgo"),
        ("webhook_url", "HTTPS://example.org", "HTTPS://example.org"),
    ],
)
def test_a_setting_takes_what_the_environment_and_a_file_can_say(
    name: str, value: object, taken: object
) -> None:
    found = getattr(Settings(**{name: value}), name)
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        *(("metrics_open", value, "must be true or false") for value in ("", "maybe", 2, None)),
        *(("workers", value, "must be a number") for value in ("", "many", True, None, "0x5")),
        *(("workers", value, "must be a whole number") for value in (5.5, "5.5", "inf")),
        *(("keep_days", value, "must be a number") for value in ("", "long", False, "9" * 5000 + "x")),
        *(("keep_days", value, "must be greater than 0") for value in (0, "-1", "nan")),
        ("memory_megabytes", 63, "must be 64 or more"),
        ("memory_megabytes", "9" * 400, "must be 1073741824 or less"),
        ("trace_rate", "nan", "must be 0 or more"),
        ("directory", 5, "must be a text"),
        ("default_service", "shop\n", "must match "),
        ("log_level", "INFO", "must be debug, info, warning or error"),
        *(
            ("webhook_url", value, "must be a URL that begins with http:// or https://")
            for value in ("", "example.org", "ftp://example.org", "http://", "http://a b/", "https://a/\n")
        ),
        ("webhook_url", "http://a:65536", "Port out of range"),
        ("nothing", 1, "isn't a field"),
    ],
)
def test_a_setting_says_what_it_must_be(name: str, value: object, fault: str) -> None:
    with pytest.raises(FieldsInvalid, match=re.escape(fault)) as raised:
        Settings(**{name: value})
    assert raised.value.faults.keys() == {name}


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
    assert f"address {address} (PGOF_BIND_ADDRESS): " in finished.stderr


def test_expired_profiles_are_listed_only_of_a_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PGOF_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("PGOF_KEEP_DAYS", "1")
    assert main(["expired"]) == 2
    assert "there is no catalog" in capsys.readouterr().err
    (tmp_path / "catalog.sqlite3").write_bytes(b"not a catalog" * 1000)
    assert main(["expired"]) == 2
    assert "pgo-collector reindex" in capsys.readouterr().err


def test_help_names_what_matters_and_how_to_see_all(stopped: Server) -> None:
    assert len(BASIC) <= 15
    for command in (("--help",), ("serve", "--help")):
        shown = stopped.run(*command).stdout
        assert [*re.findall(r"^  PGOF_(\w+)", shown, re.MULTILINE)] == [name.upper() for name in BASIC]
        assert "`pgo-collector settings`" in shown
    listed = stopped.run("settings").stdout
    assert {*re.findall(r"^PGOF_(\w+)$", listed, re.MULTILINE)} == {*map(str.upper, SHOWN)}
    assert {*re.findall(r"^      `PGOF_(\w+)`", listed, re.MULTILINE)} == {*map(str.upper, MASTERS)}


def test_the_version_says_the_commit_and_how_the_engine_runs(stopped: Server) -> None:
    shown = stopped.run("--version").stdout
    named = f"pgo-collector {re.escape(version('pgo-collector'))}"
    assert re.fullmatch(rf"{named}(, commit [0-9a-f]{{12}})?, engine {ENGINE}\n", shown)


@pytest.fixture
def settings_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "pgo-collector.toml"
    monkeypatch.setenv("PGOF_SETTINGS_FILE", str(file))
    return file


def test_settings_may_come_from_a_file_and_the_environment_counts_for_more(
    monkeypatch: pytest.MonkeyPatch, settings_file: Path
) -> None:
    settings_file.write_text("""
bind_address = ":9000"
workers = 3
keep_days = inf
keep_combined_days = 365
metrics_open = true
merge_auth_keys_file = "/keys/mérge"
""")
    monkeypatch.setenv("PGOF_BIND_ADDRESS", ":9001")
    monkeypatch.setenv("pgof_workers", "4")
    settings = read_settings()
    assert (settings.bind_address, settings.workers) == (":9001", 4)
    assert (settings.keep_days, settings.keep_combined_days, settings.metrics_open) == (math.inf, 365, True)
    assert settings.merge_auth_keys_file == Path("/keys/mérge")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"keep_day = 5", "did you mean PGOF_KEEP_DAYS?"),
        (b"keep_days = -1", "PGOF_KEEP_DAYS: must be greater than 0"),
        (b"bind_address = 8080", "PGOF_BIND_ADDRESS: must be a text"),
        (b"[keep_days]\nx = 1", "PGOF_KEEP_DAYS: must be a number"),
        (b"keep_days: 5", "isn't TOML: "),
        (b"keep_days = 5\xff", "isn't TOML: "),
        (None, "No such file or directory"),
    ],
)
def test_a_settings_file_that_cannot_be_used_is_refused(
    settings_file: Path, text: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        settings_file.write_bytes(text)
    with pytest.raises(SettingsInvalid) as raised:
        read_settings()
    assert message in str(raised.value)
    assert main(["check"]) in {1, 2}
    shown = capsys.readouterr()
    assert message in shown.out + shown.err


def test_what_was_read_is_checked_though_the_file_is_gone(settings_file: Path) -> None:
    settings_file.write_text('keep_day = 5\nkeep_days = 9\nunknown_settings = "warn"\n')
    settings = read_settings()
    settings_file.unlink()
    found = [(each.state, each.detail) for each in check_configuration(settings) if each.part == "settings"]
    set_ones = f"3 of {len(Settings.fields)} are set"
    assert found == [("warning", "PGOF_KEEP_DAY isn't a setting"), ("ok", set_ones)]
