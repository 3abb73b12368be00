"""Active-passive replication (§7): K copies over K of the N networks, in turn.

The receiver is a pipeline: the monitors of passive replication count every copy, then a token waits for K copies as in
active replication, and for missing messages as in passive replication: with 2 K <= N the networks of a token need not
be those of the messages before it.
"""

from __future__ import annotations

from ordercast.redundancy.passive import Passive
from ordercast.redundancy.state import TokenMark


class ActivePassive(Passive):
    name = "active-passive"
    resends = False  # another copy of the token has masked the loss

    def recv_token(self, t: bytes, mark: TokenMark, x: int) -> None:
        s = self.s
        order = s.compare(mark)
        if order < 0:
            return
        if order > 0:
            if s.held:
                s.pass_token()
            s.hold_token(t, mark)
        if s.recv_last_token[x]:
            return
        s.recv_last_token[x] = True
        if order == 0:
            s.note_lateness()
        if s.held:
            self.reconsider()
        self.monitors.token(x)

    def reconsider(self) -> None:
        s = self.s
        copies = min(s.config.copies, sum(s.expected))
        if sum(s.recv_last_token) >= copies and not s.missing(s.last_token):
            s.pass_token()
