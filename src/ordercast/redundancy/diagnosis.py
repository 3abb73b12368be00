"""From who hears whom by a network to the part of it that is broken, in words for an operator."""

from __future__ import annotations

from collections.abc import Mapping

Hearing = Mapping[str, frozenset[str]]
"""For each process whom it hears by the network; all of them name one another."""


def diagnose(hearing: Hearing) -> str:
    """One line: the simplest fault that explains what is not heard."""
    names = sorted(hearing)
    dead = [(a, b) for a in names for b in names if a != b and a not in hearing[b]]
    if len(names) < 2:
        return "no other process is there to hear"
    if not dead:
        return "all hear each other"
    if len(dead) == len(names) * (len(names) - 1):
        return "nobody hears anybody: the network itself (its switch), or all links"
    mute = [a for a in names if all((a, b) in dead for b in names if b != a)]
    deaf = [b for b in names if all((a, b) in dead for a in names if a != b)]
    said = []
    for name in names:
        if name in mute and name in deaf:
            said.append(f"{name} neither hears nor is heard: its link (cable, card or port)")
        elif name in mute:
            said.append(f"{name} is not heard: its sending side")
        elif name in deaf:
            said.append(f"{name} hears nobody: its receiving side")
    rest = [(a, b) for a, b in dead if a not in mute and b not in deaf]
    pairs = []
    for a, b in rest:
        if (b, a) not in rest:
            pairs.append(f"{a} to {b}")
        elif a < b:
            pairs.append(f"between {a} and {b}")
    if pairs:
        said.append("no way " + ", ".join(pairs))
    return "; ".join(said)
