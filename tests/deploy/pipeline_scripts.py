"""The scripts of pipelines, forked from a process that has them loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.forked import Forked, Forks, serve_forks

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "pipeline"
_FORKS: Final = Forks("from tests.deploy import pipeline_scripts; pipeline_scripts.serve()")


def run_script(
    name: str, arguments: Sequence[str | Path], environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `pgo_fetch` or `pgo_pull_request` in a folder, as a job does, with short pauses between tries."""
    pause = {"pgo_fetch._FIRST_PAUSE": 0.05}
    return Forked(_FORKS, [name, *arguments], environment, folder=folder, constants=pause).completed(300)


def serve() -> None:
    """Run the process that scripts are forked from."""
    sys.path.insert(0, str(FOLDER))
    import pgo_fetch  # noqa: PLC0415 - found only now
    import pgo_pull_request  # noqa: PLC0415

    mains = {"pgo_fetch": pgo_fetch.main, "pgo_pull_request": pgo_pull_request.main}

    def main(arguments: list[str]) -> int:
        name, *rest = arguments
        sys.argv[0] = f"{name}.py"
        return mains[name](rest)

    serve_forks(main)
