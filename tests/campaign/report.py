"""The findings of a part of the campaign: the figures that it measured, and the faults that it found.

Each part of `make campaign` is a module of this folder with one function,

    def run(seed: int, seconds: float, scratch: Path) -> Findings

which draws all random values from `seed`, ends at most some seconds after `seconds`, and keeps what
reproduces a fault in the folder `scratch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Findings:
    """The figures of a part, by name and with units, and its faults, each with what reproduces it."""

    figures: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def figure(self, name: str, value: object) -> None:
        """Note a figure; a later one of the same name replaces it."""
        self.figures[name] = str(value)

    def fault(self, what: str, reproduced_by: object) -> None:
        """Note a fault, and what reproduces it: a file in `scratch`, a seed and step, or a request."""
        self.faults.append(f"{what}; reproduced by {reproduced_by}")

    def lines(self) -> list[str]:
        """Return the lines to print: figures first, then faults."""
        width = max(map(len, self.figures), default=0)
        figures = [f"  {name:{width}}  {value}" for name, value in self.figures.items()]
        return [*figures, *(f"  FAULT: {fault}" for fault in self.faults)]
