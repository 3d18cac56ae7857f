"""Findings: what a check says of one part."""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["ok", "warning", "fails"]


class Finding(NamedTuple):
    """`detail` is what there is of the part, or what is wrong with it; `fix` what to do about that."""

    part: str
    state: State
    detail: str
    fix: str = ""
