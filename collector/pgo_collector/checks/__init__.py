"""Checks of settings, keys, data folder, disk and catalog; `pgo-collector check` prints their findings.

`configuration` checks the settings and the files that they name, `data_folder` the folder and its disk, and
`catalog` the catalog in it. Each check yields or returns a `Finding`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "fails"]


class Finding(NamedTuple):
    """The result of checking one part: `detail` says what is there or what is wrong, `fix` what to do."""

    part: str
    state: State
    detail: str
    fix: str = ""
