"""How often a trace gives each property something to judge: a trace that never asks says nothing about it.

What counts as an instance is the premise of the property, not all that could contradict it: for E7, say, each
configuration with its successor that two nodes or more have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ordercast.check.events import Close, Conf, Deliver, End, Event, Extra, Leave, Recover, Send

Trace = Mapping[str, Iterable[Event | Extra]]


def exercised(trace: Trace) -> dict[str, int]:
    """For each property of E1 to E14 how many instances of its premise there are."""
    found = _Instances()
    for events in trace.values():
        found.add(events)
    return found.counts()


class _Instances:
    def __init__(self) -> None:
        self.sends = self.deliveries = self.confs = self.ends = 0
        self.safe = self.safe_in_regular = 0
        self.left = 0
        """Messages whose sender left the configuration in which it had sent them, and did not crash."""
        self.caused = 0
        """Messages whose sender had delivered another's in the same configuration."""
        self.last = 0
        """Messages sent in the configuration in which their sender ends."""
        self.visitors: Counter[str] = Counter()
        self.steps: Counter[tuple[str, str]] = Counter()
        self.receivers: Counter[str] = Counter()
        self.receiving: Counter[str] = Counter()
        """Nodes that delivered two messages or more in a regular configuration."""

    def add(self, events: Iterable[Event | Extra]) -> None:
        """The events of one node."""
        regular: str | None = None
        within = ""
        sent = delivered = 0
        others = False
        for event in events:
            if type(event) is Deliver:
                self.deliveries += 1
                self.receivers[event.msg] += 1
                others = others or event.sender != event.node
                delivered += 1
                if event.service == "safe":
                    self.safe += 1
                    self.safe_in_regular += within == regular
            elif type(event) is Send:
                self.sends += 1
                sent += 1
                self.caused += others
            elif type(event) is Conf:
                self.confs += 1
                self.visitors[event.conf] += 1
                within = event.conf
                if event.kind == "regular":
                    if regular is not None:
                        self.steps[regular, event.conf] += 1
                        self.left += sent
                    self.receiving[regular or ""] += delivered > 1
                    regular, sent, delivered, others = event.conf, 0, 0, False
            elif type(event) in (Recover, Leave, End, Close):
                self.receiving[regular or ""] += delivered > 1
                if type(event) is End:
                    self.ends += 1
                    self.last += sent
                regular, within, sent, delivered, others = None, "", 0, 0, False

    def counts(self) -> dict[str, int]:
        shared = sum(nodes > 1 for nodes in self.receiving.values())
        return {
            "E1": self.deliveries,
            "E2": self.sends + self.deliveries,
            "E3": self.sends,
            "E4": self.confs,
            "E5": sum(nodes > 1 for nodes in self.visitors.values()),
            "E6": self.left,
            "E7": sum(nodes > 1 for nodes in self.steps.values()),
            "E8": self.caused,
            "E9": sum(nodes > 1 for nodes in self.receivers.values()),
            "E10": shared,
            "E11": self.safe,
            "E12": self.safe_in_regular,
            "E13": self.ends,
            "E14": self.last,
        }
