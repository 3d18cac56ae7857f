"""A flame graph as an SVG file, which needs no style sheet: its colours are attributes, in sRGB.

Browsers draw the file into a PNG. It is made by hand, of the same boxes as the drawing of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import cos, radians, sin
from xml.sax.saxutils import escape

from pgo_collector.ui.flame_drawing import ROW_HEIGHT, Box, Drawing

_WIDTH = 1200  # pixels
_HEAD = 30  # pixels above the graph, for the title
_MARGIN = 10
_INK = "#1b1e24"
# Characters that XML can't hold.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Lightness, chroma and hue (OKLCH) of the 24 colours of packages and of the differences, as in pages.css.
_HUES = (255, 25, 145, 305, 75, 195, 340, 110, 225, 50, 170, 280)
OKLCH = {
    **{f"c{number}": (0.86, 0.072, hue) for number, hue in enumerate(_HUES)},
    **{f"c{number}": (0.78, 0.085, hue + 15) for number, hue in enumerate(_HUES, len(_HUES))},
    "less4": (0.66, 0.13, 250), "less3": (0.75, 0.1, 250), "less2": (0.83, 0.065, 250),
    "less1": (0.9, 0.035, 250),
    "more4": (0.7, 0.15, 45), "more3": (0.78, 0.115, 50), "more2": (0.85, 0.075, 55),
    "more1": (0.92, 0.04, 60),
}  # fmt: skip
# The colours of the whole, of callers, of what is unchanged, and of what a search found.
RGB = {"all": "#e6e8eb", "up": "#e6e8eb", "same": "#e6e8eb", "hit": "#ffd33d"}


def svg_of(drawing: Drawing, title: str) -> bytes:
    """Return the file of a drawing; `title` is written above it."""
    return "".join(_pieces(drawing, title)).encode()


def _pieces(drawing: Drawing, title: str) -> Iterator[str]:
    height = _HEAD + drawing.rows * ROW_HEIGHT + _MARGIN
    zoomed = f", {drawing.root}" if drawing.root else ""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _MARGIN}" height="{height}"'
        f' font-family="sans-serif" font-size="12" fill="{_INK}">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="{_MARGIN}" y="20">{_text(title + zoomed)}</text>\n'
        f'<svg x="{_MARGIN}" y="{_HEAD}" width="{_WIDTH}" height="{drawing.rows * ROW_HEIGHT}">\n'
    )
    yield from map(_box, drawing.boxes)
    yield "</svg>\n</svg>\n"


def _box(box: Box) -> str:
    colour, *marks = box.colour.split()
    fill = RGB["hit"] if "hit" in marks else hex_of(colour)
    faded = ' opacity="0.32"' if "miss" in marks else ""
    label = f'<text x="5" y="15" fill="{_INK}">{_text(box.label)}</text>' if box.label else ""
    return (
        f'<svg x="{box.left}%" y="{box.row * ROW_HEIGHT}" width="{box.width}%" height="{ROW_HEIGHT - 1}">'
        f"<title>{_text(box.title)}</title>"
        f'<rect width="100%" height="100%" fill="{fill}" stroke="#fff" stroke-width="0.6"{faded}/>'
        f"{label}</svg>\n"
    )


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def hex_of(colour: str) -> str:
    """Return a colour of a box in sRGB, as `#rrggbb`; the matrices are those of Ottosson's OKLab."""
    if colour in RGB:
        return RGB[colour]
    lightness, chroma, hue = OKLCH[colour]
    a, b = chroma * cos(radians(hue)), chroma * sin(radians(hue))
    long, medium, short = (
        (lightness + part) ** 3
        for part in (
            0.3963377774 * a + 0.2158037573 * b,
            -0.1055613458 * a - 0.0638541728 * b,
            -0.0894841775 * a - 1.2914855480 * b,
        )
    )
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _encoded(part)):02x}" for part in linear)


def _encoded(linear: float) -> float:
    """Return a linear component of a colour with sRGB's gamma, from 0 to 1."""
    part = min(1.0, max(0.0, linear))
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
