"""A lock-step sequencer over the engine contract: the smallest engine with which the simulator can be tested.

The lowest name of a fixed group orders the messages; everybody keeps asking for what it has not got. It starts in a
view of itself and goes to the group's view at once, and knows nothing of failures: it is no group communication, but
it uses every effect and input of the contract.
"""

from __future__ import annotations

from collections import deque

from ordercast.engine.contract import (
    Broadcast,
    Deliver,
    Effect,
    Install,
    Kind,
    Left,
    NodeId,
    Originated,
    Persist,
    Report,
    Run,
    Submission,
    Unicast,
    View,
)
from ordercast.sim.engines import EngineSpec
from ordercast.sim.world import MakeEngine
from ordercast.wire.ids import RingId, node_key
from ordercast.wire.layout import WireError, packet_kind
from ordercast.wire.pack import Packer
from ordercast.wire.train import check_packet, parse_train, ring_prefix

RETRY_US = 20_000
REQUEST, ASK = 8, 9


class Toy:
    """Kinds of packets: 1 ordered data, 8 the same as a request to be ordered, 9 ask for what comes after seq."""

    def __init__(self, name: NodeId, members: tuple[NodeId, ...], stored: dict[str, bytes], nonce: int) -> None:
        self.name = name
        self.members = members
        self.life = int(stored.get("life", b"0") or b"0") + 1
        self.nonce = nonce
        self.prefix = ring_prefix(RingId(1, members[0]))
        self.packer = Packer(node_key(name), 300)
        self.asked = self.life * 1_000_000  # makes requests differ whose contents do not
        self.ordered: dict[int, bytes] = {}
        self.delivered = 0
        self.requests: deque[bytes] = deque()
        self.taken: dict[int, int] = {}
        self.deadline: int | None = None
        self.running = False
        self.effects: list[Effect] = []

    @property
    def backlog(self) -> int:
        return self.packer.messages

    @property
    def backlog_bytes(self) -> int:
        return self.packer.bytes

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def start(self, now: int) -> None:
        self.effects.append(Persist(1, "life", str(self.life).encode()))

    def written(self, now: int, write_id: int) -> None:
        alone = View(Kind.REGULAR, f"{self.life}.{self.nonce}:{self.name}", 0, (self.name,))
        self.effects.append(Install(alone))
        if len(self.members) > 1:
            between = View(Kind.TRANSITIONAL, f"t{alone.id}", 1, (self.name,))
            self.effects.append(Install(View(Kind.REGULAR, "all", 2, self.members), between))
            self.view_id = "all"
        else:
            self.view_id = alone.id
        self.effects.append(Report("toy", "running"))
        self.running = True
        self.deadline = now + RETRY_US
        self._request()

    def submit(self, now: int, submission: Submission) -> None:
        self.packer.add(submission.bodies, submission.service, submission.stamp_us, submission.keys, submission.headers)
        if self.running:
            self._request()

    def _request(self) -> None:
        while self.packer.messages:
            self.asked += 1
            burst = self.packer.burst(self.prefix, self.asked, 1)
            self.effects.append(Originated(self.view_id, burst.first, burst.finished))
            for data in burst.stretches:
                self.requests.append(b"OC\x01" + bytes([REQUEST]) + data[4:])
        self._repeat()

    def _repeat(self) -> None:
        if self.requests:
            self.effects.append(Unicast(self.members[0], self.requests[0]))

    def receive(self, now: int, data: bytes, segment: int) -> None:
        if self.running:
            for at in range(0, len(data), segment):
                self._receive_packet(data[at : at + segment])

    def _receive_packet(self, packet: bytes) -> None:
        try:
            kind = packet_kind(packet)
            if kind == ASK and len(packet) == 8:
                seq = int.from_bytes(packet[4:], "little")
                for wanted in range(seq, seq + 10):
                    if self.name == self.members[0] and wanted in self.ordered:
                        known = self.ordered[wanted]
                        self.effects.append(Broadcast(known, len(known)))
            elif kind == REQUEST and self.name == self.members[0]:
                self._order(b"OC\x01\x01" + packet[4:])
            elif kind == 1:
                self._take(packet)
        except WireError:
            pass

    def _order(self, packet: bytes) -> None:
        """Gives a request the next number, unless it is a repetition."""
        check_packet(packet, 0, len(packet))
        if packet in self.taken:
            known = self.ordered[self.taken[packet]]
            self.effects.append(Broadcast(known, len(known)))
            return
        seq = len(self.ordered) + 1
        self.taken[packet] = seq
        packet = packet[:28] + seq.to_bytes(8, "little") + packet[36:]
        self.effects.append(Broadcast(packet, len(packet)))
        self._take(packet)

    def _take(self, packet: bytes) -> None:
        _, seq, _ = check_packet(packet, 0, len(packet))
        self.ordered.setdefault(seq, packet)
        runs = []
        while self.delivered + 1 in self.ordered:
            self.delivered += 1
            train = parse_train(self.ordered[self.delivered], len(self.ordered[self.delivered]))
            assert train is not None
            runs.append(Run(train, 0, 1))
            if train.sender == node_key(self.name) and self.requests:
                self.requests.popleft()
                self._repeat()
        if runs:
            self.effects.append(Deliver(self.view_id, runs))

    def timer(self, now: int) -> None:
        if self.deadline is None or now < self.deadline:
            return
        self.deadline = now + RETRY_US
        self._repeat()
        if self.name != self.members[0]:
            self.effects.append(
                Unicast(self.members[0], b"OC\x01" + bytes([ASK]) + (self.delivered + 1).to_bytes(4, "little"))
            )

    def leave(self, now: int) -> None:
        self.effects.append(Left())


def toy_spec(nodes: int) -> EngineSpec:
    """The registry knows an engine by its configuration; the toy also has to know its group."""
    members = tuple(NodeId(f"n{number}") for number in range(1, nodes + 1))

    def factory(config: object) -> MakeEngine:
        return lambda name, stored, nonce: Toy(name, members, stored, nonce)

    return EngineSpec("toy", factory, {"data": 1, "request": 8, "ask": 9})
