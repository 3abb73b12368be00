"""What the layer remembers, under the names of the paper, and the constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from struct import Struct
from typing import NamedTuple

from ordercast.engine.contract import Broadcast, Effect, Report, Unicast
from ordercast.wire.ids import NodeKey
from ordercast.wire.layout import NETWORKS_MAX

NEVER = 2**62

_TOKEN = Struct("<4x16sQQ24xB")  # ring number and digest, token_seq, seq, flags
_DATA = Struct("<4x16sQQ")  # ring number and digest, sender, seq
RING_BYTES = 16


class TokenMark(NamedTuple):
    """What orders tokens: of one ring by token_seq, which grows with every hop."""

    ring: bytes
    token_seq: int
    seq: int
    flags: int

    @property
    def idle(self) -> bool:
        """The ring has nothing to do: whoever waits for this token will not miss it soon."""
        return self.flags & _IDLE != 0


def token_mark(token: bytes) -> TokenMark:
    return tuple.__new__(TokenMark, _TOKEN.unpack_from(token))


_IDLE = 2


TOKEN_BYTES_MIN = _TOKEN.size


class DataMark(NamedTuple):
    """Of the first packet of a train."""

    ring: bytes
    sender: NodeKey
    seq: int


def data_mark(data: bytes) -> DataMark:
    return tuple.__new__(DataMark, _DATA.unpack_from(data))


DATA_BYTES_MIN = _DATA.size


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The constants of the layer. Times in microseconds."""

    networks: int = 2
    copies: int = 2
    """K: how many copies of a message are sent; 1 is passive, all is active replication."""
    packet_bytes: int = 1400
    """A probe on a faulty network is as long as a full packet: one that passes small packets only is not mended."""
    token_timeout_min_us: int = 1_500
    token_timeout_max_us: int = 10_000
    """How long a token waits for other copies, or for messages, at most (§6: 10 ms); less where the networks have shown
    that they run less far apart."""
    threshold: int = 10
    """Copies of tokens, or turns of a sender, that a network must be behind to be faulty."""
    forgiveness: int = 10
    """One of them is forgiven for so many that were received: sporadic loss below a tenth never adds up."""
    probe_interval_us: int = 200_000
    probes_missed: int = 6
    """A network by which so many probes in a row of one sender are missing, while others bring them, is faulty."""
    peer_ticks: int = 10
    """A process that has been silent on all networks for so many of my probe intervals is gone."""
    repair_ticks: int = 10
    """For so many intervals a mended network must bring the probes of all before it is taken back..."""
    repair_doublings_max: int = 5
    """...twice as many for each time that it failed again soon, with so many doublings at most..."""
    repair_forget_ticks: int = 600
    """...until it has been sound for so long."""
    slice_packets: int = 16
    """A burst is split among the networks into stretches of at least so many packets."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} must be at least 1")
        if not 2 <= self.networks <= NETWORKS_MAX:
            raise ValueError(f"{self.networks} networks; redundancy takes 2 to {NETWORKS_MAX}")
        if self.copies > self.networks:
            raise ValueError(f"{self.copies} copies of a message over {self.networks} networks")
        if self.token_timeout_min_us > self.token_timeout_max_us:
            raise ValueError("token_timeout_min_us is above token_timeout_max_us")


class FaultReason(Enum):
    """Why a network is called faulty, by the evidence that came first."""

    TOKENS = "copies of the token are missing"
    MESSAGES = "messages are missing"
    PROBES = "probes are missing"
    TOLD = "another process has found it faulty"


class State:
    """The variables of Figures 2 and 4, and what the parts of the layer share.

    Networks are counted from 0 here and from 1 wherever people read of them.
    """

    __slots__ = (
        "changes", "config", "deliver_to_srp", "due", "due_seq", "effects", "epoch", "expected", "faulty",
        "held", "last_mark", "last_token", "lateness_us", "missing", "now", "recv_last_token", "resend_at", "token_at",
        "token_timer_at", "usable",
    )  # fmt: skip

    def __init__(
        self,
        config: NetworkConfig,
        deliver_to_srp: Callable[[bytes], None],
        any_messages_missing: Callable[[bytes], bool],
        due: Callable[[bytes], int],
    ) -> None:
        n = config.networks
        self.config = config
        self.deliver_to_srp = deliver_to_srp
        self.missing = any_messages_missing
        """Whether the engine, given this token now, would request a retransmission."""
        self.due = due
        """Up to which number messages were sent before this token: later ones may come behind it (deviation D29)."""
        self.now = 0
        self.effects: list[Effect] = []
        self.faulty = [False] * n
        self.changes = [0] * n
        """How often each network has become faulty or sound. All processes take the highest count that they hear of,
        so that old news never undoes new; odd: faulty."""
        self.expected = [True] * n
        """Sound, and known to be used by all: what does not come by it is missing. Invariant: not faulty."""
        self.usable: tuple[int, ...] = tuple(range(n))
        """What new messages and tokens are sent by: the sound networks; if there are none, all (erratum 16)."""
        self.last_token = b""
        self.last_mark: TokenMark | None = None
        self.due_seq = 0
        """due(last_token), as of when it came."""
        self.recv_last_token = [False] * n
        self.held = False
        """last_token has not been passed on yet; invariant: exactly then the token timer runs."""
        self.token_timer_at = NEVER
        self.resend_at = NEVER
        """When the token that was sent last is sent again, unless it has shown to have arrived (deviation R10)."""
        self.token_at = 0
        """When the first copy of last_token came."""
        self.epoch = 0
        """Tokens passed on: what a sender sends between two of them counts as one message for the monitors."""
        self.lateness_us = config.token_timeout_max_us // 2
        """How far the networks run apart, as the tokens show: a maximum that fades."""

    def send(self, effect: Broadcast | Unicast, via: int) -> None:
        """Appends a copy of the effect that leaves by network `via`."""
        if not via:
            self.effects.append(effect)  # which is for the first network as it comes from the engine
        elif isinstance(effect, Broadcast):
            self.effects.append(Broadcast(effect.data, effect.segment, via))
        else:
            self.effects.append(Unicast(effect.to, effect.packet, via))

    def send_by_all(self, effect: Broadcast | Unicast) -> None:
        """By faulty networks too: for what is rare and decisive (deviation R4)."""
        for via in range(self.config.networks):
            self.send(effect, via)

    def hold_token(self, token: bytes, mark: TokenMark) -> None:
        """lastToken = t; start token timer."""
        self.last_token, self.last_mark, self.due_seq = token, mark, self.due(token)
        self.recv_last_token = [False] * self.config.networks
        self.held = True
        self.token_at = self.now
        self.token_timer_at = self.now + self.token_timeout_us

    def pass_token(self) -> None:
        """Stop token timer; deliver lastToken to the Totem SRP."""
        self.held = False
        self.token_timer_at = NEVER
        self.epoch += 1
        self.lateness_us -= self.lateness_us >> 6
        self.deliver_to_srp(self.last_token)

    @property
    def token_timeout_us(self) -> int:
        """Deviation R2: a token does not wait longer than the networks have lately run apart, with a margin."""
        config = self.config
        return min(config.token_timeout_min_us + 2 * self.lateness_us, config.token_timeout_max_us)

    def note_lateness(self) -> None:
        """A copy, or a message, that the last token waits or waited for has come now."""
        late_us = self.now - self.token_at
        if self.lateness_us < late_us <= self.config.token_timeout_max_us:
            self.lateness_us = late_us

    def compare(self, mark: TokenMark) -> int:
        """Below 0: a late copy of an older token; 0: the last token again; above 0: a new one. Deviation R9."""
        last = self.last_mark
        if last is None:
            return 1
        if mark.ring == last.ring:
            return mark.token_seq - last.token_seq
        # Of two rings the one with the higher number is newer. With equal numbers (both sides of a partition) either
        # may be mine: the engine knows.
        return 1 if _ring_number(mark.ring) >= _ring_number(last.ring) else -1

    def set_networks(self, faulty: list[bool], expected: list[bool]) -> None:
        self.faulty = faulty
        self.expected = expected
        sound = tuple(x for x, bad in enumerate(faulty) if not bad)
        self.usable = sound or tuple(range(self.config.networks))

    def report(self, what: str, reason: str, **detail: object) -> None:
        self.effects.append(Report(what, reason, detail))


def _ring_number(ring: bytes) -> int:
    return int.from_bytes(ring[:8], "little")
