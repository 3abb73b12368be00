"""The Totem engine's receive path: from raw bytes to the effect that delivers, unencrypted, on one core.

    python bench/engine.py [--packets N] [--repeat R]

A receiver in a ring of two is fed what the other member sends: packets of 1,400 bytes, in trains of 40 and one by
one, with a token every `WINDOW` packets so that the receive queue is emptied as in a real ring. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from ordercast.engine.contract import Broadcast, Deliver, Effect, Persist, Submission, Unicast
from ordercast.engine.totem import Phase, Totem, TotemConfig
from ordercast.wire.layout import PacketKind

WINDOW = 400
CONFIG = TotemConfig(packet_bytes=1400, window_size=2 * WINDOW, max_messages=WINDOW)


def make_pair() -> tuple[Totem, Totem, int]:
    """Two engines that have just formed a ring, and the time."""
    pair = Totem("a", CONFIG, nonce=1), Totem("b", CONFIG, nonce=2)
    now = 0
    for engine in pair:
        engine.start(now)
    pending: list[tuple[Totem, Effect]] = []
    while not all(engine.phase is Phase.OPERATIONAL for engine in pair):
        now += 100
        pending = [(engine, effect) for engine in pair for effect in engine.take_effects()]
        for engine, effect in pending:
            other = pair[1] if engine is pair[0] else pair[0]
            if isinstance(effect, Persist):
                engine.written(now, effect.write_id)
            elif isinstance(effect, Broadcast):
                other.receive(now, effect.data, effect.segment)
            elif isinstance(effect, Unicast):
                (engine if effect.to == engine.name else other).receive(now, effect.packet, len(effect.packet))
        for engine in pair:
            deadline = engine.deadline
            if deadline is not None and deadline <= now:
                engine.timer(now)
        assert now < 10_000_000, "the two engines form no ring"
    return *pair, now


def record(packets: int, size: int, in_trains_of: int) -> list[tuple[bytes, int]]:
    """What `b` receives while `a` broadcasts: trains, and after each window the token."""
    a, b, now = make_pair()
    inputs: list[tuple[bytes, int]] = []
    sent = 0
    while sent < packets:
        assert now < 1_000_000_000, "the ring has stopped"
        if a.backlog < WINDOW * 30:
            a.submit(now, Submission([bytes(size)] * (WINDOW * max(1, 1344 // (size + 2)))))
        for engine, other in ((a, b), (b, a)):
            deadline = engine.deadline
            if deadline is not None and deadline <= now:
                engine.timer(now)
            for effect in engine.take_effects():
                if isinstance(effect, Broadcast):
                    is_data = effect.data[3] == PacketKind.DATA
                    if not is_data:
                        continue
                    step = effect.segment * in_trains_of
                    for at in range(0, len(effect.data), step):
                        train = effect.data[at : at + step]
                        other.receive(now, train, effect.segment)
                        if other is b:
                            inputs.append((train, effect.segment))
                            sent += -(-len(train) // effect.segment)
                elif isinstance(effect, Unicast):
                    target = engine if effect.to == engine.name else other
                    target.receive(now, effect.packet, len(effect.packet))
                    if target is b:
                        inputs.append((effect.packet, len(effect.packet)))
        now += 100
    return inputs


def measure(packets: int, size: int, in_trains_of: int) -> float:
    """Packets a second through `receive` and `take_effects` of a fresh receiver."""
    inputs = record(packets, size, in_trains_of)
    _, receiver, now = make_pair()
    delivered = 0
    receive, take_effects = receiver.receive, receiver.take_effects
    begin = time.perf_counter()
    for data, segment in inputs:
        now += 1
        receive(now, data, segment)
        for effect in take_effects():
            if type(effect) is Deliver:
                for run in effect.runs:
                    delivered += run.stop - run.start
    elapsed = time.perf_counter() - begin
    assert delivered >= packets * 0.99, f"{delivered} of {packets} packets were delivered"
    return delivered / elapsed


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--packets", type=int, default=400_000)
    options.add_argument("--repeat", type=int, default=5)
    args = options.parse_args()
    figures = {}
    for name, size, trains in (
        ("trains_of_40_1KB", 1024, 40),
        ("trains_of_40_64B", 64, 40),
        ("one_by_one_1KB", 1024, 1),
        ("one_by_one_64B", 64, 1),
    ):
        packets = args.packets if trains > 1 else args.packets // 4
        runs = [measure(packets, size, trains) for _ in range(args.repeat)]
        figures[name] = {"packets_per_s": round(statistics.median(runs)), "runs": [round(run) for run in runs]}
    print(json.dumps({"bench": "engine", "packet_bytes": CONFIG.packet_bytes, "figures": figures}, indent=1))


if __name__ == "__main__":
    main()
