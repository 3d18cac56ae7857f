"""CI tries a few failed tests again, shows why they failed, and lets nobody skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.ci_reports import MOST_SECOND_TRIES, main, why_no_second_try


def report_of(folder: Path, *cases: str) -> Path:
    report = folder / "report.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return report


def failing(name: str) -> str:
    return (
        f'<testcase classname="tests.a" name="{name}"><failure message="m">assert {name}</failure></testcase>'
    )


PASSED = '<testcase classname="tests.a" name="passed" />'
SKIPPED = '<testcase classname="tests.a" name="left"><skipped message="no nginx" /></testcase>'
NO_IMPORT = '<testcase classname="" name="a"><error message="collection failure">E</error></testcase>'


def test_what_failed_is_shown_and_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(tmp_path, PASSED, failing("one"))
    assert why_no_second_try(report, tmp_path / "tried") == ""
    assert "FAILED tests.a::one\nassert one" in capsys.readouterr().out
    assert (tmp_path / "tried").read_text() == "tests.a::one\n"


def test_the_third_failed_test_of_a_run_is_a_fault_whatever_its_stage(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    for number in range(MOST_SECOND_TRIES):
        assert why_no_second_try(report_of(tmp_path, failing(f"n{number}")), tried) == ""
    assert "n0, " in why_no_second_try(report_of(tmp_path, failing("last")), tried)


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ([failing(f"n{number}") for number in range(MOST_SECOND_TRIES + 1)], "3 tests failed"),
        ([NO_IMPORT], "can't be imported"),
        ([PASSED], "no test failed"),
    ],
)
def test_a_fault_for_sure_is_not_tried_again(tmp_path: Path, cases: list[str], reason: str) -> None:
    assert reason in why_no_second_try(report_of(tmp_path, *cases), tmp_path / "tried")


def test_a_skipped_test_is_told_with_its_reason(tmp_path: Path) -> None:
    assert main("skipped", str(report_of(tmp_path, PASSED))) == ""
    assert "tests.a::left: no nginx" in main("skipped", str(report_of(tmp_path, PASSED, SKIPPED)))
