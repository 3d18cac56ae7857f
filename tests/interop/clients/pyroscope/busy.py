"""A busy program that profiles itself with pyroscope-io: FOLDER of the package, URL and KEY of the collector.

It runs until its standard input is closed.
"""

import sys
import threading
from pathlib import Path

_, folder, url, key = sys.argv
sys.path.insert(0, str(Path(folder).resolve()))


def count_in_python(most: int) -> int:
    total = 0
    for number in range(most):
        total += number
    return total


def main() -> None:
    import pyroscope  # type: ignore[import-not-found]  # noqa: PLC0415 - it is in `folder`

    pyroscope.configure(
        application_name="py.shop",
        server_address=url,
        basic_auth_username="anyone",
        basic_auth_password=key,
        tags={"region": "eu"},
        sample_rate=100,
        enable_logging=True,  # to standard error
    )
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.wait(0.02):  # most of a core is left to the tests beside it
        count_in_python(200_000)


main()
