"""Traces of saved files: what our command, OpenTelemetry's tools and strangers wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pgo_collector.command.cli import main
from pgo_collector.traces.outlets import RequestTrace
from pgo_collector.traces.spans import Span
from pgo_collector.traces.texts import json_of

pytestmark = pytest.mark.any_store

TRACE, OTHER = "ab" * 16, "cd" * 16
_SPANS = [
    Span("1" * 16, "", "http", "POST /v1/submit", 1000, 9_001_000, {"size": 7, "is": True, "share": 0.5}),
    Span("2" * 16, "1" * 16, "store", "write blob", 2000, 5_002_000, {"name": "x"}, "OSError"),
]
# As OpenTelemetry's collector writes another program's spans: it has kinds of values that ours have not.
_OWN = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": TRACE.upper(),
                            "spanId": "3" * 16,
                            "name": "take profile",
                            "startTimeUnixNano": 500,
                            "endTimeUnixNano": "9500000",
                            "attributes": [
                                {"key": "tags", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}},
                                {"key": "nothing", "value": {}},
                            ],
                            "status": {"code": "STATUS_CODE_ERROR"},
                        }
                    ]
                }
            ],
        }
    ]
}


def show(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    """Run `trace show` in this process; return all that it prints."""
    assert main(["trace", "show", *map(str, arguments)]) == code
    return "".join(capsys.readouterr())


def test_a_saved_trace_is_shown_as_it_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (saved := tmp_path / "saved.json").write_text(json_of([RequestTrace(TRACE, "shop", 204, _SPANS)]))
    assert show(capsys, "--file", saved, "--json") == saved.read_text()
    text = show(capsys, TRACE.upper(), "--file", saved)
    assert "     0.000      9.000      4.000  POST /v1/submit  [size=7, is=True, share=0.5]" in text
    assert "    write blob  [error=OSError, name=x]" in text
    assert f"<h1>Trace {TRACE}</h1>" in show(capsys, "--file", saved, "--html")


def test_lines_of_several_programs_are_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below = _SPANS[0]._replace(parent="3" * 16)
    ours = json.loads(json_of([RequestTrace(TRACE, "", 204, [below, _SPANS[1]])]))
    saved = tmp_path / "traces.jsonl"
    saved.write_text(f"{json.dumps(_OWN)}\n\n{json.dumps(ours)}\n")
    own, request, blob = show(capsys, "--file", saved).splitlines()[1:]
    assert own.endswith('  take profile  [error=error, tags={"values": [{"stringValue": "a"}]}, nothing=]')
    assert request.endswith("    POST /v1/submit  [size=7, is=True, share=0.5]")
    assert blob.endswith("      write blob  [error=OSError, name=x]")
    assert '"other"' in show(capsys, "--file", saved, "--html")
    assert '"cat": "shop"' in show(capsys, "--file", saved, "--chrome")


def test_one_of_several_traces_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = [RequestTrace(trace, "", 204, _SPANS) for trace in (TRACE, OTHER)]
    (saved := tmp_path / "two.jsonl").write_text(
        "\n".join(json.dumps(json.loads(json_of([trace]))) for trace in traces)
    )
    assert f"name one of its 2 traces, such as {TRACE} {OTHER}" in show(capsys, "--file", saved, code=2)
    assert "name one of" in show(capsys, "ef" * 16, "--file", saved, code=2)
    assert "write blob" in show(capsys, OTHER, "--file", saved)
    assert "name a trace" in show(capsys, code=2)


def _span(**fields: object) -> str:
    span = _OWN["resourceSpans"][0]["scopeSpans"][0]["spans"][0] | fields  # type: ignore[index]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"not JSON",
        b"[" * 100_000,
        b"[]",
        b'{"traceEvents": []}',
        b'{"resourceSpans": 7}',
        b'{"resourceSpans": [7]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}',
        _span(traceId="../../etc/passwd").encode(),
        _span(spanId="12").encode(),
        _span(startTimeUnixNano="-1").encode(),
        _span(endTimeUnixNano="9" * 5000).encode(),
        _span(endTimeUnixNano=1e300).encode(),
        _span(attributes={"key": "value"}).encode(),
        _span(attributes=[{"key": "a", "value": {"intValue": "x"}}]).encode(),
        _span(attributes=[{"key": "a", "value": {"intValue": 1, "boolValue": 1}}]).encode(),
        _span(status=[]).encode(),
    ],
)
def test_a_file_of_something_else_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved := tmp_path / "saved").write_bytes(content)
    said = show(capsys, "--file", saved, code=2)
    assert f"{saved}: this isn't OTLP/JSON" in said
    assert len(said) < 800


def test_a_file_that_is_missing_empty_or_huge_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No such file" in show(capsys, "--file", tmp_path / "none", code=2)
    (empty := tmp_path / "empty").write_text('{"resourceSpans": []}')
    assert "it has no spans" in show(capsys, "--file", empty, code=2)
    with (huge := tmp_path / "huge").open("wb") as file:
        file.truncate(65 << 20)
    assert "larger than 64 MiB" in show(capsys, "--file", huge, code=2)


def test_no_name_of_a_file_reaches_the_terminal_as_an_escape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved := tmp_path / "saved").write_text(_span(name="\x1b[31m<script>"))
    assert "\x1b" not in show(capsys, "--file", saved)
    assert "<script>" not in show(capsys, "--file", saved, "--html")
