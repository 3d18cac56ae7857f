"""Charts show the figures of the tables, in proportion, or are not drawn at all."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from tools.site.chart import (
    CHART,
    GAINS,
    GAINS_CHART,
    SAMPLES_CHART,
    TABLES,
    chart,
    gains_chart,
    samples_chart,
)

TEXT = TABLES.read_text()
# The panel whose bars the tests change: its row, with what ours and Go's take.
ROW = re.compile(r"(?<=^\| 2,000 \| ≥ 10 \| )(.*)$", re.MULTILINE)


def drawn(svg: str) -> list[tuple[str, float]]:
    """Return the text beside each bar, and the bar's width, from top to bottom."""
    elements = [*ET.fromstring(svg)]  # noqa: S314 - our own chart
    bars = [number for number, element in enumerate(elements) if element.get("rx") == "2"]
    return [(elements[bar + 1].text or "", float(elements[bar].get("width") or 0)) for bar in bars]


def test_the_committed_chart_is_the_one_that_the_tables_give() -> None:
    assert CHART.read_text() == chart(TEXT), "call `make docs`"


def test_bars_are_as_long_as_the_figures_in_the_table() -> None:
    cells = "1 | 1 | 1 | 500.0 ms | 1 s | 1 MiB | 2.00 s | 1 s | 1 MiB |"
    changed, replaced = ROW.subn(cells, TEXT, count=1)
    assert replaced == 1
    bars = drawn(chart(changed))
    assert len(bars) == 8
    (ours, short), (theirs, long) = bars[2:4]
    assert (ours, theirs) == ("500.0 ms", "2.00 s")
    assert short * 4 == pytest.approx(long)


@pytest.mark.parametrize("missing", ["## Memory", "| 2,000 |", "| ours: CPU"])
def test_what_the_tables_lack_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=re.escape(missing.strip("|# "))):
        chart(TEXT.replace(missing, missing[:2] + " another"))


def test_the_committed_chart_of_gains_is_the_one_that_the_table_gives() -> None:
    assert GAINS_CHART.read_text() == gains_chart(GAINS.read_text()), "call `make docs`"
    assert SAMPLES_CHART.read_text() == samples_chart(GAINS.read_text()), "call `make docs`"


GAINED = """# What programs gain

## All programs

| program | compiler | profile | instructions saved | CPU without ÷ with |
| --- | ---: | ---: | ---: | ---: |
| lua | clang 14 | none |  |  |
| lua | clang 14 | ours | -0.5 % | 0.80 (0.75 to 1.00) |
| lua | clang 14 | instrumented | 12.0 % | 1.25 (1.20 to 1.40) |
| logsum | Go 1.27 | none |  |  |
| logsum | Go 1.27 | ours |  | 4.00 (3.00 to 5.00) |

## Another

| program | what |
| --- | ---: |
| lua | else |
"""


def test_bars_of_gains_are_as_long_as_what_is_saved() -> None:
    bars = drawn(gains_chart(GAINED))
    assert [said for said, _ in bars] == [
        "25 % more CPU time, 0.5 % more instructions",
        "20 % less CPU time, 12.0 % fewer instructions",
        "75 % less CPU time",
    ]
    (_, lost), (_, some), (_, most) = bars
    assert lost / some == pytest.approx(25 / 20, rel=0.01)
    assert most / some == pytest.approx(75 / 20, rel=0.01)


def test_lines_of_gains_go_from_quartile_to_quartile() -> None:
    lines = re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)"', gains_chart(GAINED))
    lost, some, most = (float(end) - float(begin) for begin, end in lines)
    # 0.75 is 33 % more, 1.20 to 1.40 are 17 to 29 % less, and 3.00 to 5.00 are 67 to 80 % less.
    assert lost / most == pytest.approx(33.3 / 13.3, rel=0.05)
    assert some / most == pytest.approx(11.9 / 13.3, rel=0.05)


@pytest.mark.parametrize("missing", ["## All programs", "| profile", "| instructions saved"])
def test_what_the_table_of_gains_lacks_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=re.escape(missing.strip("|# "))):
        gains_chart(GAINED.replace(missing, missing[:2] + " another"))


CURVES = """# What programs gain

## How many samples are enough

| program | samples | of the gain with all | lowest | highest |
| --- | ---: | ---: | ---: | ---: |
| json | 100 | -50 % | -60 % | 10 % |
| json | 1,000 | 50 % | 40 % | 60 % |
| json | 10,000 | 100 % | 100 % | 100 % |
| lua | 1,000 | 25 % | 20 % | 30 % |
"""


def test_lines_of_gains_go_through_the_points_of_the_table() -> None:
    elements = [*ET.fromstring(samples_chart(CURVES))]  # noqa: S314 - our own chart
    lines = [element for element in elements if element.tag.endswith("polyline")]
    json, lua = (
        [tuple(map(float, place.split(","))) for place in (line.get("points") or "").split()]
        for line in lines
    )
    (first, lowest), (second, middle), (third, highest) = json
    assert second - first == pytest.approx(third - second, abs=0.2)
    assert lowest - middle == pytest.approx(2 * (middle - highest), abs=0.2)
    assert lua[0][0] == second
    assert middle < lua[0][1] < lowest
    titles = [element.text for element in elements if element.get("font-weight") == "bold"]
    assert titles[1:] == ["json", "lua"]


@pytest.mark.parametrize("missing", ["## How many samples", "| samples", "| of the gain"])
def test_what_the_table_of_samples_lacks_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=re.escape(missing.strip("|# "))):
        samples_chart(CURVES.replace(missing, missing[:2] + " another"))
