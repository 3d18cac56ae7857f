"""A busy program that profiles itself with ddtrace: FOLDER of the package, and URL of the collector.

It runs until its standard input is closed.
"""

import os
import sys
import threading
from pathlib import Path

_, folder, url = sys.argv
sys.path.insert(0, str(Path(folder).resolve()))
os.environ |= {
    "DD_TRACE_AGENT_URL": url,
    "DD_SERVICE": "py.shop",
    "DD_ENV": "test",
    "DD_VERSION": "1.4",
    "DD_TAGS": "region:eu",
    "DD_PROFILING_ENABLED": "true",
    "DD_PROFILING_UPLOAD_INTERVAL": "2",
    # Nothing but profiles is sent.
    "DD_TRACE_ENABLED": "false",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
}


def count_in_python(most: int) -> int:
    total = 0
    for number in range(most):
        total += number
    return total


def main() -> None:
    from ddtrace.profiling import Profiler  # type: ignore[import-not-found]  # noqa: PLC0415 - it is in `folder`

    Profiler().start()
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(0.02):  # most of a core is left to the tests beside it
        count_in_python(200_000)


main()
