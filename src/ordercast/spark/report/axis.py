"""Scales: where a value lies on the page, round numbers along it, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SECOND_STEPS = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)
_POWERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float) -> str:
    """At most three figures: 950, 12.5k, 3.2M."""
    if value < 0:
        return "−" + number(-value)
    for power, letter in _POWERS:
        if value >= power * 0.9995:
            return _figures(value / power) + letter
    return _figures(value)


def duration(us: float) -> str:
    """Of microseconds: 85 µs, 1.2 ms, 3.4 s, 5 min."""
    if us >= 120e6:
        minutes = us / 60e6
        return f"{_figures(minutes)} min" if minutes < 120 else f"{_figures(minutes / 60)} h"
    for power, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= power * 0.9995:
            return f"{_figures(us / power)} {unit}"
    return f"{_figures(us)} µs"


def amount(size: float) -> str:
    """Bytes, in powers of ten."""
    text = number(size)
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def seconds(value: float) -> str:
    if value < 120:
        return f"{value:g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min" if not rest else f"{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h" if not minutes else f"{hours} h {minutes:02}"


def _figures(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0") if value >= 9.995 else f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Axis:
    """A scale between two values."""

    low: float
    high: float
    label: str
    write: Callable[[float], str] = number
    log: bool = False
    time: bool = False
    places: tuple[float, ...] = ()
    """Where the ticks are, if that is known better."""

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, at_most: int = 8) -> list[float]:
        if self.places:
            return list(self.places)
        if self.log:
            return self._log_ticks(at_most)
        step = self._step(at_most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(place * step, 10) for place in range(first, last + 1)]

    def _step(self, at_most: int) -> float:
        rough = (self.high - self.low) / at_most
        if self.time and rough > _SECOND_STEPS[0]:
            return next((step for step in _SECOND_STEPS if step >= rough), math.ceil(rough / 86400) * 86400)
        power = 10.0 ** math.floor(math.log10(rough))
        return next(power * step for step in _STEPS if power * step >= rough * (1 - 1e-9))

    def _log_ticks(self, at_most: int) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for within in ((1, 2, 5), (1,)):
            found = [each * 10.0**decade for decade in decades for each in within]
            found = [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]
            if len(found) <= at_most:
                return found
        return found[:: math.ceil(len(found) / at_most)]


def span(values: Iterable[float], label: str, write: Callable[[float], str] = number, log: bool = False) -> Axis:
    """An axis that holds all values: from zero to a round number, or over whole steps of a logarithmic scale."""
    known = [value for value in values if not log or value > 0]
    if log:
        low, high = min(known, default=1.0), max(known, default=10.0)
        down, up = _round_log(low, math.floor), _round_log(high, math.ceil)
        return Axis(down, up if up > down else down * 10, label, write, log=True)
    high = max(known, default=1.0) or 1.0
    step = Axis(0.0, high, "")._step(5)
    return Axis(0.0, math.ceil(high / step - 1e-9) * step, label, write)


def _round_log(value: float, how: Callable[[float], int]) -> float:
    """The next of 1, 2, 5, 10, … on that side."""
    decade = 10.0 ** math.floor(math.log10(value))
    steps = [each * decade for each in (1, 2, 5, 10)]
    if how is math.floor:
        return max(step for step in steps if step <= value * 1.0001)
    return min(step for step in steps if step >= value * 0.9999)
