"""Checks of the settings and of the files that they name, in this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pgo_collector.checks import Finding
from pgo_collector.checks.configuration import check_configuration
from pgo_collector.settings import Settings
from pgo_collector.settings.fields import FieldsInvalid

pytestmark = pytest.mark.any_store


def found(part: str, **settings: Any) -> Finding:
    """Return the finding about a part."""
    (finding,) = (each for each in check_configuration(Settings(**settings)) if each.part == part)
    return finding


def test_trace_keys_are_counted_and_must_not_be_open(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one-key-of-16-bytes\nanother-of-16-bytes\n")
    file.chmod(0o600)
    finding = found("trace keys", trace_keys_file=file)
    assert (finding.state, finding.detail) == ("ok", f"2 in {file}")
    file.chmod(0o644)
    finding = found("trace keys", trace_keys_file=file)
    assert (finding.state, finding.fix) == ("warning", f"chmod o= {file}")
    file.write_text("short\n")
    assert found("trace keys", trace_keys_file=file).state == "fails"


def test_programs_that_cannot_be_read_are_a_fault_only_where_some_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = found("binaries", directory=tmp_path)
    assert (finding.state, "llvm-symbolizer isn't on PATH" in finding.detail) == ("ok", True)
    program = tmp_path / "binaries" / "shop" / f"abcd-{'0' * 64}.elf"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"a program")
    finding = found("binaries", directory=tmp_path)
    assert (finding.state, finding.detail) == (
        "warning",
        "1 programs are stored, and can't help the format llvm",
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    away = found("binaries", directory=tmp_path, storage="s3://profiles/pgo", storage_seconds=0.1)
    assert away.state == "ok"  # other checks tell that the bucket is away
    assert found("binaries", binaries_kept=0).detail == "off: PGOF_BINARIES_KEPT is 0"


def test_packages_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("capstone", "distributed"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were looked for in vain
    assert "pip install 'pgo-collector[binary]'" in found("binaries", directory=tmp_path).detail
    finding = found("bulk", bulk="dask://127.0.0.1:1")
    assert (finding.state, finding.fix) == ("fails", "install it, or unset PGOF_BULK")
    assert "pgo-collector[dask]" in finding.detail


def test_a_folder_of_rules_must_be_one(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.touch()
    finding = found("rules", rules_dir=file)
    assert (finding.state, finding.detail) == ("fails", f"{file} can't be listed")
    assert "PGOF_RULES_DIR" in finding.fix


def test_rules_for_metrics_of_functions_must_be_sound_and_of_use(tmp_path: Path) -> None:
    file = tmp_path / "functions.toml"
    assert found("functions").detail == "off"
    missing = found("functions", function_metrics_file=file)
    assert (missing.state, missing.detail) == ("fails", f"{file}: No such file or directory")
    file.write_text("\n[[rule]]\nname = 'json'\nfunction = '('\n")
    broken = found("functions", function_metrics_file=file, metrics_open=True)
    assert (broken.state, "line 2: the regular expression '('" in broken.detail) == ("fails", True)
    file.write_text("[[rule]]\nname = 'json'\nfunction = 'json'\n")
    sound = found("functions", function_metrics_file=file, metrics_open=True)
    assert (sound.state, sound.detail) == ("ok", f"1 rules in {file}")
    assert found("functions", function_metrics_file=file).state == "warning"


def test_servers_of_debuginfod_are_named_without_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("debuginfod").detail == "off"
    urls = "https://me:secret@one.example/debug http://localhost:8002"
    finding = found("debuginfod", debuginfod_urls=urls)
    asked = "asked for build ids: https://one.example, http://localhost:8002"
    assert (finding.state, finding.detail) == ("ok", asked)
    plain = found("debuginfod", debuginfod_urls=f"{urls} http://two.example")
    assert (plain.state, plain.detail) == ("warning", "http://two.example could give false names")
    off = found("debuginfod", debuginfod_urls=urls, binaries_kept=0)
    assert (off.state, "PGOF_BINARIES_KEPT is 0" in off.detail) == ("warning", True)
    monkeypatch.setitem(sys.modules, "symbolic", None)  # as if it were looked for in vain
    assert "pip install" in found("debuginfod", debuginfod_urls=urls).fix
    with pytest.raises(FieldsInvalid) as raised:
        found("debuginfod", debuginfod_urls="ftp://me:secret@one.example")
    assert "secret" not in str(raised.value)
