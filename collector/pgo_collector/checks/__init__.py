"""Checks: whether settings, keys, data folder and disk are as they should be; `pgo-collector check` prints
them.

`configuration` looks at the settings and what they name, `data_folder` at the folder and its disk, and
`catalog` at the catalog in it. Each returns a list of `Finding`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "fails"]


class Finding(NamedTuple):
    """`detail` is what there is of the part, or what is wrong with it; `fix` what to do about that."""

    part: str
    state: State
    detail: str
    fix: str = ""
