# noqa: INP001 - beside other commands
"""Read pytest's reports in JUnit's form, for CI (`.ci/run`).

`failed REPORT` shows what failed in a stage, and exits with 0 if it should be tried again. `skipped REPORT…`
exits with 1 if a test was skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

# A busy machine makes one wait too long, or two. Three failed tests are a fault, of the code or of the tests.
MOST_SECOND_TRIES = 2


def _cases(report: Path) -> list[ET.Element]:
    return [*ET.parse(report).getroot().iter("testcase")]  # noqa: S314 - pytest wrote it


def _name(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def why_no_second_try(report: Path) -> str:
    """Print what failed in a stage; return why it should not be tried again, or "".

    Tests that fail for want of one fixture are one failure.
    """
    failed = {
        _name(case): reason
        for case in _cases(report)
        for reason in (*case.iter("failure"), *case.iter("error"))
    }
    for name, reason in failed.items():
        print(f"FAILED {name}\n{reason.text or reason.get('message')}\n")
    if not failed:
        return "no test failed, but pytest did"
    if any(reason.get("message") == "collection failure" for reason in failed.values()):
        return "a file of tests can't be imported"
    failures = {reason.get("message") if reason.tag == "error" else name for name, reason in failed.items()}
    if len(failures) > MOST_SECOND_TRIES:
        every = ", ".join(failed)
        return (
            f"{len(failures)} failures in this stage; at most {MOST_SECOND_TRIES} get a second try: {every}"
        )
    return ""


def skipped(reports: list[Path]) -> list[str]:
    """Return each test that was skipped, with the reason."""
    return [
        f"{_name(case)}: {reason.get('message')}"
        for report in reports
        for case in _cases(report)
        for reason in case.iter("skipped")
    ]


def main(command: str, *reports: str) -> str:
    """Do what the module's docstring says; return what is wrong, or ""."""
    paths = [*map(Path, reports)]
    if command == "failed":
        return why_no_second_try(*paths)
    lines = skipped(paths)
    return "\n".join(["CI has all that tests need, but these were skipped:", *lines]) if lines else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) or 0)
