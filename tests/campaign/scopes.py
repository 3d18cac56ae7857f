"""Scopes: random questions to all reading routes of two random stores, with and without other services.

A key's answers must be the same in both, byte by byte: see `tests.collector.scopes`. A difference is kept as
a file with what all was drawn from, the question, the key, and the answers without and with others.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.campaign.collector import Collector
from tests.campaign.report import Findings
from tests.collector.application import application
from tests.collector.scopes import differences, questions, routes_of, stores, words

# Stores are made anew after so many seconds, with other profiles.
_A_STORE = 60.0


def run(seed: int, seconds: float, scratch: Path) -> Findings:
    """Ask for `seconds`; each question is drawn from the seed, as are the profiles of each pair of stores."""
    findings, counts, end, made = Findings(), Counter[str](), time.monotonic() + seconds, 0
    routes = routes_of(application(scratch))
    while time.monotonic() < end and not findings.faults:
        random, made = Random(f"{seed}/{made}"), made + 1  # noqa: S311 - nothing secret
        known = words(random)
        with stores(scratch / f"stores-{made}", known, Collector) as (alone, beside):
            last = min(end, time.monotonic() + _A_STORE)
            while time.monotonic() < last and not findings.faults:
                asked = (each for each in questions(routes, known, random, 1) if time.monotonic() < last)
                for found in differences(alone, beside, asked, counts):
                    file = scratch / f"difference-{len(findings.faults)}"
                    file.write_text("\n\n".join(map(str, (f"Random('{seed}/{made - 1}')", *found))))
                    findings.fault(f"{found.question.route} depends on what is stored of others", file)
    findings.figure("pairs of stores", made)
    findings.figure("questions, each by two keys to two stores", f"{sum(counts.values()):,}")
    answered = sum(count for route, count in counts.items() if route.endswith((" 200", " 303")))
    findings.figure("questions with an answer", f"{answered:,}")
    return findings
