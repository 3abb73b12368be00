"""Sending in turn, as passive and active-passive replication do (§6, §7): K copies over the next K networks.

Deviation R1: the unit that goes to the next network is a stretch of a burst and not a message. A burst is split evenly,
so that all networks are busy at once, and each stretch still leaves and arrives as a train.
"""

from __future__ import annotations

from ordercast.engine.contract import Broadcast, Unicast
from ordercast.redundancy.state import State, TokenMark


class Turns:
    """Round-robin over the usable networks, for messages and for tokens each on its own."""

    def __init__(self, s: State, begin: int) -> None:
        """Processes begin with different networks, or a dead one would swallow the tokens of a whole rotation."""
        self.s = s
        self.send_message_via = begin - 1
        self.send_token_via = begin - 1

    def message(self, m: Broadcast) -> None:
        s = self.s
        n = len(s.usable)
        packets = -(-len(m.data) // m.segment)
        stretches = min(n, max(1, packets // s.config.slice_packets))
        begin = 0
        for done in range(1, stretches + 1):
            end = packets * done // stretches
            self.send_message_via = (self.send_message_via + 1) % n
            stretch = m
            if stretches > 1:
                stretch = Broadcast(m.data[begin * m.segment : end * m.segment], m.segment)
            self._copies(stretch, self.send_message_via)
            begin = end

    def token(self, t: Unicast, mark: TokenMark) -> None:
        if mark.idle:
            # Deviation R8: on an idle ring bandwidth is free, and a loss is noticed late.
            for via in self.s.usable:
                self.s.send(t, via)
            return
        self.send_token_via = (self.send_token_via + 1) % len(self.s.usable)
        self._copies(t, self.send_token_via)

    def _copies(self, effect: Broadcast | Unicast, first: int) -> None:
        s = self.s
        n = len(s.usable)
        # With no sound network left nobody knows which of them brings what to whom.
        copies = n if all(s.faulty) else min(s.config.copies, n)
        for turn in range(first, first + copies):
            s.send(effect, s.usable[turn % n])
