"""A container of a manifest: the command line that it runs."""

from __future__ import annotations

import re
from typing import Any


def command_line(container: dict[str, Any]) -> list[str]:
    """Return a container's command and arguments with variables filled in; a value from a field is 0."""
    environment = {variable["name"]: variable.get("value", "0") for variable in container.get("env", ())}
    given = [*container["command"], *container["args"]]
    return [re.sub(r"\$\((\w+)\)", lambda found: str(environment[found[1]]), each) for each in given]
