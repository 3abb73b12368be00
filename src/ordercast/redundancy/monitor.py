"""Network monitors: Figure 5 for passive replication, the problem counters of Figure 2 for active replication.

The decay, which neither figure shows, is driven by messages and by time (erratum 16): see `forgive`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.redundancy.state import FaultReason, State
from ordercast.wire.ids import NodeKey

Fault = Callable[[int, FaultReason, dict[str, object]], None]
"""Network, reason, evidence."""

SENDERS_MAX = 512


class Monitor:
    """Figure 5: one module; counts what came by each network, and finds the one that is left behind."""

    __slots__ = ("_high", "_ring", "_until_forgiven", "epochs", "recv_count")

    def __init__(self, networks: int) -> None:
        self.recv_count = [0] * networks
        self.epochs = [-1] * networks
        """When each network last brought something, in tokens that were passed on."""
        self._ring = b""
        self._high = [0] * networks
        self._until_forgiven = 0

    def first_time(self, ring: bytes, number: int, x: int) -> bool:
        """Whether x, which keeps the order, may bring this number for the first time: if not, it was sent again."""
        if ring != self._ring:
            self._ring = ring
            self._high = [0] * len(self._high)
        first = number > self._high[x]
        if first:
            self._high[x] = number
        return first

    def received(self, x: int, s: State) -> list[int]:
        """Counts a message by network x; the networks that are too far behind now."""
        count = self.recv_count
        count[x] += 1
        self._until_forgiven += 1
        if self._until_forgiven >= s.config.forgiveness:
            self._until_forgiven = 0
            self.forgive()
        if max(count) - min(count) <= s.config.threshold:
            return []  # the rule, each time
        most = max(c for c, wanted in zip(count, s.expected, strict=True) if wanted) if any(s.expected) else 0
        return [i for i, wanted in enumerate(s.expected) if wanted and most - count[i] > s.config.threshold]

    def forgive(self) -> None:
        """Networks that lag behind catch up a little, so that sporadic losses never add up (P5)."""
        most = max(self.recv_count)
        self.recv_count = [c + (c < most) for c in self.recv_count]

    def reset(self) -> None:
        """After a change of the networks in use old counts would compare what cannot be compared."""
        self.recv_count = [0] * len(self.recv_count)


class Monitors:
    """Passive replication's M + 1 modules: one a sender, and one for the tokens."""

    def __init__(self, s: State, fault: Fault) -> None:
        self._s = s
        self._fault = fault
        self._senders: dict[NodeKey, Monitor] = {}
        self.tokens = Monitor(s.config.networks)

    def sender(self, key: NodeKey) -> Monitor:
        monitor = self._senders.get(key)
        if monitor is None:
            if len(self._senders) >= SENDERS_MAX:
                del self._senders[next(iter(self._senders))]
            monitor = self._senders[key] = Monitor(self._s.config.networks)
        return monitor

    def message(self, x: int, sender: NodeKey, monitor: Monitor) -> None:
        """Deviation R3: all packets of a sender between two tokens count as one message. So a burst that is split among
        the networks, or lost as a whole, counts once, however many packets it has."""
        s = self._s
        if monitor.epochs[x] == s.epoch:
            return
        monitor.epochs[x] = s.epoch
        for i in monitor.received(x, s):
            self._fault(i, FaultReason.MESSAGES, {"of": sender, "received": list(monitor.recv_count)})

    def token(self, x: int) -> None:
        for i in self.tokens.received(x, self._s):
            self._fault(i, FaultReason.TOKENS, {"received": list(self.tokens.recv_count)})

    def forgive(self) -> None:
        for monitor in (self.tokens, *self._senders.values()):
            monitor.forgive()

    def reset(self) -> None:
        for monitor in (self.tokens, *self._senders.values()):
            monitor.reset()


class ProblemCounters:
    """Figure 2's problemCounter, one a network, in units of which a missing copy of a token is `forgiveness`."""

    def __init__(self, s: State, fault: Fault) -> None:
        self._s = s
        self._fault = fault
        self.problem_counter = [0] * s.config.networks

    def missed(self, networks: Sequence[int]) -> None:
        """The token timer expired, and these networks had not delivered the token."""
        config = self._s.config
        for i in networks:
            self.problem_counter[i] += config.forgiveness
        for i in networks:
            if self.problem_counter[i] >= config.threshold * config.forgiveness:
                missing = self.problem_counter[i] // config.forgiveness
                self._fault(i, FaultReason.TOKENS, {"missing": missing})

    def late(self, x: int) -> None:
        """A copy that was counted as missing has come after all."""
        self.problem_counter[x] = max(0, self.problem_counter[x] - self._s.config.forgiveness)

    def received(self, x: int) -> None:
        """A copy came in time, which makes up for a little of what was missing (A6)."""
        if self.problem_counter[x]:
            self.problem_counter[x] -= 1

    def forgive(self) -> None:
        self.problem_counter = [max(0, count - 1) for count in self.problem_counter]

    def reset(self) -> None:
        self.problem_counter = [0] * len(self.problem_counter)
