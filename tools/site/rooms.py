"""Draw docs/rooms.svg: the rooms of the merge engine and of the collector, floor above floor.

`make docs` runs this. A test fails where the committed picture is another one, or where the code's imports
don't keep to these floors.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

PICTURE = Path(__file__).parents[2] / "docs" / "rooms.svg"

# The rooms of each package from the ground up, and what they are about. A room imports only what is below it.
Floors = Sequence[Mapping[str, str]]
FLOORS: Mapping[str, Floors] = {
    "collector/pgo_collector": (
        {
            "errors": "one tree",
            "logs": "JSON lines",
            "resources": "limits, cgroup",
            "background": "tasks",
            "on_first_use": "imports",
        },
        {
            "model": "series, selection, blob names: plain values",
            "reloaded_file": "files that change",
            "readers": "of other formats",
        },
        {"traces": "spans, gate, signatures, their store, and what is read of them"},
        {"blobs": "the bytes of profiles: a folder or a bucket"},
        {"catalog": "which blobs count", "engine": "what workers do", "settings": "one table"},
        {"workers": "processes, their pool; a Dask cluster"},
        {"store": "data folder, group commit, garbage"},
        {"merges": "made, kept, combined", "hooks": "webhooks", "backups": "copies"},
        {"http": "in and out", "releases": "builds", "upkeep": "roll-ups", "debuginfod": "names"},
        {"submits": "body to disk", "queries": "top, diff, flames", "connections": "sockets"},
        {
            "starting": "what a start mends",
            "ui": "the pages",
            "metrics": "Prometheus",
            "checks": "for operators",
        },
        {"routes": "the URLs of the API; profefe's below /api/0"},
        {"serve": "from settings to a clean stop"},
        {"command": "pgo-collector"},
    ),
    "merge/pprof_merge": (
        {
            "errors": "one tree",
            "arrays": "of NumPy",
            "heap": "glibc",
            "streams": "of commands",
            "compiled": "by mypyc",
            "lazy": "imports",
        },
        {"columns": "flat arrays", "limits": "of a profile", "budget": "of an output"},
        {"profile": "one, as columns"},
        {"codec": "bytes ↔ columns"},
        {"merging": "dictionary, sums, weights"},
        {"analysis": "top, diff, flame graph, report, rules"},
        {"formats": "pprof, go, folded, speedscope, json, llvm"},
        {"binary": "a program's blocks, for llvm", "symbols": "names for addresses"},
        {"command": "pprof-merge"},
    ),
}

_WIDTHS = {"collector/pgo_collector": 560, "merge/pprof_merge": 360}
_MARGIN, _GAP, _TITLE = 20, 8, 34
_BOX_HEIGHT, _ROW_HEIGHT = 42, 54
_CARD, _EDGE, _TEXT, _FAINT = "#fcfcfa", "#dcdbd5", "#1b1f2a", "#555b66"
_BOX_STYLE = 'fill="#e6eef7" stroke="#2f6fb3"'


def picture() -> str:
    """Return the picture as SVG."""
    floors = max(map(len, FLOORS.values()))
    height = 2 * _MARGIN + _TITLE + floors * _ROW_HEIGHT + 24
    width = _MARGIN + sum(each + _MARGIN for each in _WIDTHS.values())
    ground = _MARGIN + _TITLE + floors * _ROW_HEIGHT - _BOX_HEIGHT
    parts, left = [], _MARGIN
    for package, rows in FLOORS.items():
        top = ground - (len(rows) - 1) * _ROW_HEIGHT
        parts.append(_text(left, top - 12, package, weight="bold", size=15))
        for number, rooms in enumerate(rows):
            parts += _floor(rooms, left, ground - number * _ROW_HEIGHT, _WIDTHS[package])
        left += _WIDTHS[package] + _MARGIN
    legend = "A room imports only rooms below it. The collector uses only names that pprof_merge publishes."
    parts.append(_text(_MARGIN, height - _MARGIN, legend, fill=_FAINT))
    drawn = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" font-family="system-ui, sans-serif">
<title>The rooms of the collector and of the merge engine</title>
<!-- Made by `make docs` from tools/site/rooms.py; what is changed here by hand is lost. -->
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{_CARD}" stroke="{_EDGE}"/>
{drawn}
</svg>
"""


def _floor(rooms: Mapping[str, str], left: int, top: int, width: int) -> list[str]:
    """Return the boxes of one floor, which share its width by the length of their texts."""
    sizes = {room: max(len(room) + 2, len(about)) + 3 for room, about in rooms.items()}
    free = width - _GAP * (len(rooms) - 1)
    parts, x = [], float(left)
    for room, about in rooms.items():
        box = free * sizes[room] / sum(sizes.values())
        parts += [
            f'<rect x="{x:.1f}" y="{top}" width="{box:.1f}" height="{_BOX_HEIGHT}" rx="4" {_BOX_STYLE}/>',
            _text(round(x) + 8, top + 17, room, weight="bold"),
            _text(round(x) + 8, top + 33, about, fill=_FAINT, size=11),
        ]
        x += box + _GAP
    return parts


def _text(x: int, y: int, text: str, *, weight: str = "normal", fill: str = _TEXT, size: int = 13) -> str:
    attributes = f'x="{x}" y="{y}" fill="{fill}" font-size="{size}" font-weight="{weight}"'
    return f"<text {attributes}>{html.escape(text, quote=False)}</text>"


if __name__ == "__main__":
    PICTURE.write_text(picture())
