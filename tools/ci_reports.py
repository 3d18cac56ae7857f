# noqa: INP001 - beside other commands
"""Read pytest's reports in JUnit's form, for CI (`.ci/run`).

`failed REPORT` shows what failed in a stage, and exits with 0 if it should be tried again. `skipped REPORT…`
exits with 1 if a test was skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

# The names of tests that failed in this stage of CI, one a line.
SECOND_TRIES = Path(".dev/second-tries")
# A busy machine makes one wait too long, or two. Three failed tests are a fault, of the code or of the tests.
MOST_SECOND_TRIES = 2


def _cases(report: Path) -> list[ET.Element]:
    return [*ET.parse(report).getroot().iter("testcase")]  # noqa: S314 - pytest wrote it


def _name(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def why_no_second_try(report: Path, tried: Path = SECOND_TRIES) -> str:
    """Print what failed, and add its names to `tried`; return why it should not be tried again, or ""."""
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
    with tried.open("a") as file:
        file.writelines(f"{name}\n" for name in failed)
    names = tried.read_text().splitlines()
    if len(names) > MOST_SECOND_TRIES:
        every = ", ".join(names)
        most = MOST_SECOND_TRIES
        return f"{len(names)} tests failed in this stage; at most {most} get a second try: {every}"
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
