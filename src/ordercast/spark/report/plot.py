"""Plots over two axes as SVG: lines, stacked areas, points, and a reading of the values under the pointer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from ordercast.spark.report.axis import Axis

WIDTH = 960
LEFT, RIGHT, TOP, BOTTOM = 70, 28, 14, 46
COLOURS = 8
"""How many series can be told apart; the page's style has a colour for each."""


@dataclass(frozen=True)
class Series:
    """Points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = None


@dataclass(frozen=True)
class Mark:
    """A vertical line, and what it stands for."""

    x: float
    text: str


@dataclass
class Plot:
    """One plot; `figure` puts a title, a legend and words to it."""

    x: Axis
    y: Axis
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    stacked: bool = False
    dots: bool = False
    height: int = 300
    reading: dict[float, list[str]] = field(default_factory=dict)

    def px(self, value: float) -> float:
        return LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)

    def py(self, value: float) -> float:
        return self.height - BOTTOM - self.y.share(value) * (self.height - TOP - BOTTOM)

    def svg(self) -> str:
        body = [grid(self.x, self.y, self.px, self.py, self.height)]
        body += self._areas() if self.stacked else self._lines()
        for mark in self.marks:
            at = self.px(mark.x)
            body.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{self.height - BOTTOM}">'
                        f"<title>{escape(mark.text)}</title></line>")  # fmt: skip
        body.append(f'<line class="cross" y1="{TOP}" y2="{self.height - BOTTOM}" visibility="hidden"/>')
        readings = escape(json.dumps(self._readings(), ensure_ascii=False, separators=(",", ":")), quote=True)
        return (f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" data-readings="{readings}">'
                + "".join(body) + "</svg>")  # fmt: skip

    def _lines(self) -> list[str]:
        found = []
        for number, series in enumerate(self.series):
            points = [(self.px(x), self.py(y)) for x, y in series.points if not self.y.log or y > 0]
            style = f"--c:var(--s{colour(series, number)})"
            if len(points) > 1:
                path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
                found.append(f'<path class="line" style="{style}" d="{path}"/>')
            if self.dots or len(points) == 1:
                found += [f'<circle class="dot" style="{style}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in points]
        return found

    def _areas(self) -> list[str]:
        """The series on top of each other; all have the same places on the x axis."""
        found = []
        places = [x for x, _ in self.series[0].points] if self.series else []
        below = [0.0] * len(places)
        for number, series in enumerate(self.series):
            above = [low + y for low, (_, y) in zip(below, series.points, strict=True)]
            top = [f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in zip(places, above, strict=True)]
            base = [f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in zip(places, below, strict=True)]
            path = "M" + "L".join(top + base[::-1]) + "Z"
            found.append(f'<path class="area" style="--c:var(--s{colour(series, number)})" d="{path}"/>')
            below = above
        return found

    def _readings(self) -> list[list[object]]:
        """For each place on the x axis where something is known: how far right, and a line for each series."""
        found: dict[float, list[str]] = {}
        for series in self.series:
            for x, y in series.points:
                found.setdefault(x, [self.x.write(x)]).append(f"{series.name}: {self.y.write(y)}")
        return [[round(self.px(x), 1), lines] for x, lines in sorted(found.items())]


def colour(series: Series, number: int) -> int:
    """1 to COLOURS, or 0 for grey."""
    return (number % COLOURS) + 1 if series.colour is None else series.colour


def grid(x: Axis, y: Axis | None, px: object, py: object, height: int) -> str:
    """Lines and numbers of both axes, and what the axes are."""
    assert callable(px)
    floor = height - BOTTOM
    found = []
    if y is not None:
        assert callable(py)
        for tick in y.ticks(6):
            at = py(tick)
            found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            found.append(f'<text class="tick" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
                         f"{escape(y.write(tick))}</text>")  # fmt: skip
        middle = (TOP + floor) / 2
        found.append(f'<text class="axis" transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle">'
                     f"{escape(y.label)}</text>")  # fmt: skip
    for tick in x.ticks(9):
        at = px(tick)
        found.append(f'<line class="stub" x1="{at:.1f}" x2="{at:.1f}" y1="{floor}" y2="{floor + 5}"/>')
        found.append(f'<text class="tick" x="{at:.1f}" y="{floor + 19}" text-anchor="middle">'
                     f"{escape(x.write(tick))}</text>")  # fmt: skip
    found.append(f'<line class="base" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>')
    found.append(f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{height - 6}" text-anchor="middle">'
                 f"{escape(x.label)}</text>")  # fmt: skip
    return "".join(found)
