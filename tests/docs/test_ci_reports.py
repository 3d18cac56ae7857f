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
    assert why_no_second_try(report) == ""
    assert "FAILED tests.a::one\nassert one" in capsys.readouterr().out


def test_tests_that_fail_for_want_of_one_fixture_are_one_failure(tmp_path: Path) -> None:
    wanting = [
        f'<testcase classname="tests.a" name="{name}"><error message="failed on setup">E</error></testcase>'
        for name in "abcd"
    ]
    assert why_no_second_try(report_of(tmp_path, *wanting)) == ""
    others = [failing(f"n{number}") for number in range(MOST_SECOND_TRIES)]
    assert "3 failures" in why_no_second_try(report_of(tmp_path, *wanting, *others))


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ([failing(f"n{number}") for number in range(MOST_SECOND_TRIES + 1)], "3 failures"),
        ([NO_IMPORT], "can't be imported"),
        ([PASSED], "no test failed"),
    ],
)
def test_a_fault_for_sure_is_not_tried_again(tmp_path: Path, cases: list[str], reason: str) -> None:
    assert reason in why_no_second_try(report_of(tmp_path, *cases))


def test_a_skipped_test_is_told_with_its_reason(tmp_path: Path) -> None:
    assert main("skipped", str(report_of(tmp_path, PASSED))) == ""
    assert "tests.a::left: no nginx" in main("skipped", str(report_of(tmp_path, PASSED, SKIPPED)))
