"""Seconds as text, microseconds as integers: the one conversion between scripts and virtual time."""

from __future__ import annotations

import re

_SECONDS = re.compile(r"([+-]?)(\d+)(?:\.(\d{1,6}))?")


def micros(text: str) -> int:
    """Microseconds from a number of seconds, without a detour through binary fractions."""
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number of seconds with up to six decimals")
    sign, whole, part = match.groups()
    value = int(whole) * 1_000_000 + int((part or "").ljust(6, "0"))
    return -value if sign == "-" else value


def seconds(value_us: int) -> str:
    """The shortest text of a number of microseconds that `micros` reads."""
    sign = "-" if value_us < 0 else ""
    whole, part = divmod(abs(value_us), 1_000_000)
    return f"{sign}{whole}" + (f".{part:06}".rstrip("0") if part else "")
