# noqa: INP001 - a script, run as it stands
"""`make serve`: make keys for development, print commands to try, and become the collector."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
COLLECTOR = Path(sys.executable).with_name("pgo-collector")
PROFILE = "tests/testdata/profiles/apisvc-v1-s1-002.pb.gz"

# The environment overrides these, so that a second collector can run beside the first.
SETTINGS = {
    "PGOF_BIND_ADDRESS": "127.0.0.1:8080",
    "PGOF_DIRECTORY": "./profiles",
    "PGOF_SUBMIT_AUTH_KEYS_FILE": ".dev/submit_keys",
    "PGOF_MERGE_AUTH_KEYS_FILE": ".dev/merge_keys",
    "PGOF_METRICS_OPEN": "true",
} | os.environ

GREETING = """\
A collector for development on {url}, with data in {directory}; Ctrl-C stops it.
In another terminal, in this folder:

# Submit a profile.
curl -sS --fail-with-body -H "Authorization: Bearer $(head -n 1 {submit_keys})" \
--data-binary @{profile} {url}/v1/submit

# Fetch the merge of all profiles, for `go build -pgo=default.pgo`.
curl -sS --fail -H "Authorization: Bearer $(head -n 1 {merge_keys})" -o default.pgo {url}/v1/merge

"""


def main() -> None:
    """Make keys if there are none, print the greeting, and become the collector, in the repository's root."""
    os.chdir(ROOT)
    submit_keys, merge_keys = SETTINGS["PGOF_SUBMIT_AUTH_KEYS_FILE"], SETTINGS["PGOF_MERGE_AUTH_KEYS_FILE"]
    for file in (Path(submit_keys), Path(merge_keys)):
        if not file.exists():
            make_key(file)
    address = SETTINGS["PGOF_BIND_ADDRESS"]
    greeting = GREETING.format(
        url=f"http://{'127.0.0.1' if address.startswith(':') else ''}{address}",
        directory=SETTINGS["PGOF_DIRECTORY"],
        submit_keys=submit_keys,
        merge_keys=merge_keys,
        profile=PROFILE,
    )
    sys.stdout.write(greeting)
    sys.stdout.flush()  # exec discards buffered output
    os.execve(COLLECTOR, [str(COLLECTOR), "serve"], SETTINGS)  # noqa: S606 - our own program, without a shell


def make_key(file: Path) -> None:
    """Make a keys file with one key. The key isn't printed, since it would stay in the terminal's history."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    subprocess.run([COLLECTOR, "keys", "new", file], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - as above


if __name__ == "__main__":
    main()
