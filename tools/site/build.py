"""Build the site: `python -m tools.site.build OUT`. Any warning of Sphinx, such as a dead link, fails it."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.cmd.build import main

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def build(out: Path, docs: Path = DOCS) -> int:
    """Build the site in a folder. Return the exit status: 0, or 1 with the warnings on standard error."""
    strict = ["-W", "--keep-going", "-n"]
    anew = ["-E", "-d", str(out / ".doctrees")]
    return main(["-q", "-b", "html", *strict, *anew, "-c", str(HERE), str(docs), str(out)])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
