"""An engine that does as little as it can and remembers what it was told, to look at the simulator from within."""

from __future__ import annotations

from ordercast.engine.contract import Broadcast, Effect, Install, Kind, Left, NodeId, Persist, Submission, View
from ordercast.sim.engines import EngineSpec
from ordercast.sim.schedule import parse_schedule
from ordercast.sim.world import MakeEngine, World


class Probe:
    """Broadcasts each submission as one train, whose bytes are those of the messages; `keep` as first body persists."""

    def __init__(self, name: NodeId, stored: dict[str, bytes], nonce: int) -> None:
        self.name = name
        self.stored = stored
        self.nonce = nonce
        self.deadline: int | None = None
        self.backlog = 0
        self.backlog_bytes = 0
        self.told: list[tuple[object, ...]] = []
        self.effects: list[Effect] = []
        self.writes = 0

    def start(self, now: int) -> None:
        self.told.append(("start", now))
        self.effects.append(Install(View(Kind.REGULAR, f"{self.nonce}:{self.name}", 1, (self.name,))))

    def receive(self, now: int, data: bytes, segment: int) -> None:
        self.told.append(("receive", now, data, segment))

    def submit(self, now: int, submission: Submission) -> None:
        self.told.append(("submit", now))
        self.effects.append(Broadcast(b"".join(submission.bodies), len(submission.bodies[0])))

    def written(self, now: int, write_id: int) -> None:
        self.told.append(("written", now, write_id))

    def timer(self, now: int) -> None:
        self.told.append(("timer", now))
        self.deadline = None

    def leave(self, now: int) -> None:
        self.told.append(("leave", now))
        self.effects.append(Left())

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def persist(self, record: bytes) -> None:
        """To be carried out with the effects of the next input."""
        self.writes += 1
        self.effects.append(Persist(self.writes, "key", record))

    def got(self, what: str) -> list[tuple[object, ...]]:
        return [entry for entry in self.told if entry[0] == what]

    def packets(self) -> list[bytes]:
        """What was received, cut into packets."""
        found: list[bytes] = []
        for _, _, data, segment in self.got("receive"):
            assert isinstance(data, bytes)
            assert isinstance(segment, int)
            # An empty packet is a train of one.
            found += [data[at : at + segment] for at in range(0, len(data), segment)] if data else [data]
        return found


def _factory(config: object) -> MakeEngine:
    return Probe


PROBE = EngineSpec("probe", _factory, {"data": 1})


def probe_world(script: str) -> World:
    """A world of probes, started, before the first action."""
    schedule = parse_schedule(script)
    world = World(schedule, Probe, {"data": ord("1")}, keep_reports=True)
    for node in world.nodes:
        node.start()
    return world


def probe(world: World, name: str) -> Probe:
    engine = world.named(name)[0].engine
    assert isinstance(engine, Probe)
    return engine
