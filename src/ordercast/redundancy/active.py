"""Active replication (§5): the algorithm of Figure 2, procedure by procedure.

Every message and token is sent over all networks. A message is passed on as soon as a copy comes; a token when it has
come by all networks that are not faulty, or when the token timer expires: then all messages sent before it have come
too, because each network keeps the order (A2), and no network is left behind (A3).
"""

from __future__ import annotations

from ordercast.engine.contract import Broadcast, Unicast
from ordercast.redundancy.monitor import Fault, ProblemCounters
from ordercast.redundancy.state import State, TokenMark


class Active:
    name = "active"

    def __init__(self, s: State, fault: Fault, _begin: int) -> None:
        self.s = s
        self.monitors = ProblemCounters(s, fault)

    def send_msg(self, m: Broadcast) -> None:
        for i in self.s.usable:
            self.s.send(m, i)

    def send_token(self, t: Unicast) -> None:
        for i in self.s.usable:
            self.s.send(t, i)

    def recv_msg(self, m: bytes, x: int) -> None:
        """After m went to the Totem SRP, which drops copies by their sequence numbers (A1)."""
        # Without a network on which all agree, the order of a single one says nothing: wait as in Figure 4.
        if self.s.held and not any(self.s.expected):
            self.reconsider()

    def recv_token(self, t: bytes, mark: TokenMark, x: int) -> None:
        s = self.s
        order = s.compare(mark)
        if order < 0:
            return  # a late copy (erratum 15)
        if order > 0:
            if s.held:
                s.pass_token()  # another ring's, of which no more copies will come
            s.hold_token(t, mark)
        if s.recv_last_token[x]:
            return
        s.recv_last_token[x] = True
        if s.held:
            self.monitors.received(x)
            if order == 0:
                s.note_lateness()
            self.reconsider()
        else:
            # All later copies are ignored; but this one was late, and not lost.
            s.note_lateness()
            self.monitors.late(x)

    def reconsider(self) -> None:
        """Passes the token that waits on if it has come by all networks by which it must come."""
        s = self.s
        for received, wanted in zip(s.recv_last_token, s.expected, strict=True):
            if wanted and not received:
                return
        if not any(s.expected) and s.missing(s.last_token):
            return
        s.pass_token()

    def token_timer_expired(self) -> None:
        s = self.s
        self.monitors.missed([i for i, wanted in enumerate(s.expected) if wanted and not s.recv_last_token[i]])
        if s.held:
            s.pass_token()
