"""Who was in which view, and when: a row for each member, a bar for each view, one colour for those in one view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ordercast.spark.report.axis import Axis
from ordercast.spark.report.plot import BOTTOM, COLOURS, LEFT, RIGHT, TOP, WIDTH, grid

ROW = 30
BAR = 20
LABEL_WIDTH = 7.0
"""Of a letter in a bar, in the page's units."""


@dataclass(frozen=True)
class Stay:
    """A member in a view, from one second to another."""

    member: str
    view: str
    start: float
    end: float
    title: str
    crashed: bool = False


def timeline(x: Axis, members: Sequence[str], stays: Sequence[Stay]) -> str:
    """Bars too narrow for their view's name are left without; every bar says it under the pointer."""
    height = TOP + ROW * len(members) + BOTTOM
    order: dict[str, int] = {}
    for stay in sorted(stays, key=lambda stay: (stay.start, stay.view)):
        order.setdefault(stay.view, len(order) % COLOURS + 1)

    def px(value: float) -> float:
        return LEFT + x.share(value) * (WIDTH - LEFT - RIGHT)

    found = [grid(x, None, px, None, height)]
    for number, member in enumerate(members):
        top = TOP + ROW * number
        found.append(f'<text class="name" x="{LEFT - 10}" y="{top + ROW / 2 + 4:.0f}" text-anchor="end">'
                     f"{escape(member)}</text>")  # fmt: skip
        for stay in (stay for stay in stays if stay.member == member):
            left, right = px(stay.start), px(stay.end)
            width = max(right - left - 1.5, 1.5)
            y = top + (ROW - BAR) / 2
            found.append(
                f'<g><title>{escape(stay.title)}</title><rect class="bar" style="--c:var(--s{order[stay.view]})" '
                f'x="{left:.1f}" y="{y:.0f}" width="{width:.1f}" height="{BAR}" rx="3"/>'
            )
            name = stay.view.partition(".")[0]
            if width > LABEL_WIDTH * len(name) + 6:
                found.append(f'<text class="inbar" x="{left + 6:.1f}" y="{top + ROW / 2 + 4:.0f}">'
                             f"{escape(name)}</text>")  # fmt: skip
            if stay.crashed:
                found.append(f'<text class="crash" x="{right + 4:.1f}" y="{top + ROW / 2 + 5:.0f}">✕</text>')
            found.append("</g>")
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">' + "".join(found) + "</svg>"
