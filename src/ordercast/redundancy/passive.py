"""Passive replication (§6): the algorithm of Figure 4, procedure by procedure.

Every message and token is sent over one network, in turn. Messages are passed on at once; a token that has overtaken
messages waits until they have come, or until the token timer expires: so only what was dropped is requested again
(P1). What counts as missing is what the engine would request: it may forward a token before its last messages.

Deviation R10: a token that nothing shows to have arrived is sent again by all networks, as soon as the networks' delays
allow to say so. A dead network that is not yet known would otherwise cost the engine's own patience at every Nth hop.
"""

from __future__ import annotations

from ordercast.engine.contract import Broadcast, Unicast
from ordercast.redundancy.monitor import Fault, Monitors
from ordercast.redundancy.sending import Turns
from ordercast.redundancy.state import NEVER, State, TokenMark, data_mark, token_mark

LATE_MAX = 64


class Passive:
    name = "passive"
    resends = True

    def __init__(self, s: State, fault: Fault, begin: int) -> None:
        self.s = s
        self.monitors = Monitors(s, fault)
        self._turns = Turns(s, begin)
        self._sent: Unicast | None = None
        self._sent_seq = 0
        self._perhaps_late: dict[int, tuple[int, int]] = {}
        """Messages that came after their token was passed on: by which network, how late."""

    def send_msg(self, m: Broadcast) -> None:
        self._turns.message(m)
        s = self.s
        if s.resend_at < NEVER and len(m.data) > s.config.slice_packets * m.segment:
            # The token went ahead of a burst: the next process has to take that in, and sends as much, before it shows.
            s.resend_at = s.now + s.config.token_timeout_max_us

    def send_token(self, t: Unicast) -> None:
        mark = token_mark(t.packet)
        self._turns.token(t, mark)
        if self.resends and not mark.idle:
            self._sent, self._sent_seq = t, mark.seq
            self.s.resend_at = self.s.now + self.s.token_timeout_us

    def recv_msg(self, m: bytes, x: int) -> None:
        """After m went to the Totem SRP."""
        s = self.s
        mark = data_mark(m)
        monitor = self.monitors.sender(mark.sender)
        last = s.last_mark
        first = monitor.first_time(mark.ring, mark.seq, x)
        if last is not None and mark.ring == last.ring and mark.seq <= s.due_seq:
            self._note_lateness(mark.seq, x, first)
        if s.resend_at < NEVER and mark.seq > self._sent_seq:
            s.resend_at = NEVER  # somebody has had the token after me
        if s.held:
            self.reconsider()
        self.monitors.message(x, mark.sender, monitor)

    def _note_lateness(self, seq: int, x: int, first: bool) -> None:
        """A message for which the last token waits, or waited, has come by x. After the timer has expired it may be the
        late original or the copy that was requested: only what comes by one network twice was late, and not lost."""
        s = self.s
        if s.held:
            if first:
                s.note_lateness()
        elif first:
            if len(self._perhaps_late) >= LATE_MAX:
                self._perhaps_late.clear()
            self._perhaps_late[seq] = x, s.now - s.token_at
        elif self._perhaps_late.get(seq, (None, 0))[0] == x:
            s.lateness_us = max(s.lateness_us, min(self._perhaps_late.pop(seq)[1], s.config.token_timeout_max_us))

    def recv_token(self, t: bytes, mark: TokenMark, x: int) -> None:
        s = self.s
        order = s.compare(mark)
        if order > 0:
            s.resend_at = NEVER
            if s.held:
                s.pass_token()
            s.hold_token(t, mark)
            self.reconsider()
        # Each token is passed on once, comparing the rotation too (erratum 15); but every copy is counted, also one
        # that a slower network brings when the next token has come already: tokens sent again (R10) go by all.
        last, tokens = s.last_mark, self.monitors.tokens
        if last is not None and mark.ring == last.ring and tokens.first_time(mark.ring, mark.token_seq, x):
            self.monitors.token(x)

    def reconsider(self) -> None:
        """Passes the token that waits on if no message is missing any more."""
        if not self.s.missing(self.s.last_token):
            self.s.pass_token()

    def token_timer_expired(self) -> None:
        self.s.pass_token()

    def resend(self) -> None:
        """Nothing shows that the token has arrived: once more, by all networks."""
        self.s.resend_at = NEVER
        if self._sent is not None:
            for via in self.s.usable:
                self.s.send(self._sent, via)
