"""The cells at the two ends of a life, and those of late writes, which no simulated host reaches.

A host may hand several inputs to an engine before it takes the effects, so an engine that has just left may still get
any of them; and one that starts may get packets of any kind. Here one engine gets them all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.engine.contract import Effect, Left, Persist, Submission, Unicast
from ordercast.engine.totem import Phase, Totem
from ordercast.engine.totem.state import Ring
from ordercast.wire.ids import NodeId, RingId
from ordercast.wire.pack import Packer
from ordercast.wire.totem import Beacon, CommitEntry, CommitToken, Join, Leave, Token, Wake

ME, OTHER = NodeId("n1"), NodeId("n2")


class Host:
    """Runs one engine alone, step by step."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.engine = Totem(ME)
        self.writes: list[int] = []
        self.to_self: list[bytes] = []
        self.engine.start(self.now)

    def take(self) -> list[Effect]:
        effects = self.engine.take_effects()
        self.writes += [effect.write_id for effect in effects if isinstance(effect, Persist)]
        self.to_self += [effect.packet for effect in effects if isinstance(effect, Unicast) and effect.to == ME]
        return effects

    def step(self) -> None:
        """Hands back the oldest packet to itself, or lets the next deadline come."""
        self.take()
        if self.to_self:
            packet = self.to_self.pop(0)
            self.engine.receive(self.now, packet, len(packet))
            return
        deadline = self.engine.deadline
        assert deadline is not None
        self.now = max(self.now, deadline)
        self.engine.timer(self.now)

    def until(self, phase: Phase) -> None:
        for _ in range(1_000):
            if self.engine.phase is phase:
                self.take()
                return
            self.step()
        raise AssertionError(f"{phase.name} was not reached, it is in {self.engine.phase.name}")

    def write(self) -> None:
        """The latest write is done, and those before it are not."""
        self.take()
        self.engine.written(self.now, self.writes.pop())


def packets(ring: Ring) -> list[bytes]:
    """One of each kind, as far as they concern `ring`, and one of another ring."""
    other = RingId(96, OTHER)
    foreign = Ring(other, (OTHER,), OTHER, 800)
    packer = Packer(next(iter(foreign.keys)), 1400)
    packer.add([b"message", b"of another ring"])
    own = packer.burst(ring.prefix, ring.high_seq + 1, 1).stretches[0]
    packer.add([b"message"])
    proposal = frozenset((ME, OTHER))
    return [
        Beacon(other.number, foreign.digest, OTHER, frozenset(foreign.keys), frozenset()).encode(),
        own,
        packer.burst(foreign.prefix, 1, 1).stretches[0],
        Token(ring.number, ring.digest, 2**40).encode(),
        Join(OTHER, proposal, frozenset(), 96).encode(),
        CommitToken(100, 0, 1, 0, [CommitEntry(name) for name in sorted(proposal)]).encode(),
        Leave(ring.number, ring.digest, OTHER).encode(),
        Wake(ring.number, ring.digest, next(iter(foreign.keys))).encode(),
    ]


def give_everything(host: Host) -> list[Effect]:
    """All inputs that a host may still have, in one batch; gives the effects that they had."""
    for packet in packets(host.engine.state.active):
        host.engine.receive(host.now, packet, len(packet))
    host.engine.leave(host.now)
    return host.engine.take_effects()


def start_amid_traffic() -> list[Effect]:
    host = Host()
    host.take()
    return give_everything(host)


def leave_amid_traffic() -> list[Effect]:
    """The rest of a batch in which an engine has left; the process may have been stopped for long within it."""
    host = Host()
    host.write()
    host.until(Phase.COMMIT)
    host.write()
    host.until(Phase.OPERATIONAL)
    host.engine.submit(host.now, Submission([b"last"]))
    host.engine.leave(host.now)
    while not any(isinstance(effect, Left) for effect in host.engine.state.effects):
        host.step()
    host.engine.take_effects()
    effects = give_everything(host)
    host.engine.written(host.now, 1)
    host.now += 10_000_000
    host.engine.timer(host.now)
    return effects + host.engine.take_effects()


def write_late(phase: Phase) -> None:
    """The write of an attempt that was given up is reported in `phase`, after that of the next attempt."""
    host = Host()
    host.write()
    host.until(Phase.COMMIT)
    host.until(Phase.GATHER)
    host.until(Phase.COMMIT)
    host.write()
    host.until(phase)
    host.write()


def reach_the_ends(late_writes: Iterable[Phase]) -> None:
    """`late_writes`: the states in which the table allows for them."""
    start_amid_traffic()
    leave_amid_traffic()
    for phase in late_writes:
        write_late(phase)
