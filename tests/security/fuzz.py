"""Fuzzes the security layer, and behind it the decoders of the redundancy layer and of Totem.

No crash, nothing opened, bounded memory:

    python -m tests.security.fuzz --packets 10000000 [--seed N]

Half of the mutants are of sealed packets: the guard must open none, whatever it is. The other half are malformed
packets of a member that holds the key: they pass the guard and must not crash the engine. A member that lies with
well-formed packets is out of scope (whoever holds the key is trusted); what the engine's own assertions say to such
lies is counted as `lies`. Progress on a terminal, a JSON summary, status 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import product
from random import Random

from ordercast.engine.contract import Effect, Persist, Unicast
from ordercast.wire.guard import REFUSED
from ordercast.wire.ids import NodeId, Service, node_key
from ordercast.wire.layout import PacketKind, WireError
from ordercast.wire.pack import Packer
from ordercast.wire.probe import decode_probe
from ordercast.wire.totem import decode_beacon, decode_commit, decode_join, decode_leave, decode_token, decode_wake
from ordercast.wire.train import parse_train

from .world import Process, World

CHUNK = 10_000
"""Mutants against one group; then a new one, so that the engine is met in an operational ring again and again."""
RSS_GROWTH_MIB_MAX = 64
SAMPLES_PER_KIND = 8
_VALUES = [
    value.to_bytes(size, "little")
    for size in (1, 2, 4, 8)
    for value in (0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (8 * size - 2), 2 ** (8 * size - 1) - 1)
]
_DECODERS: dict[int, Callable[[bytes], object]] = {
    PacketKind.DATA: lambda data: parse_train(data, len(data)),
    PacketKind.TOKEN: decode_token,
    PacketKind.JOIN: decode_join,
    PacketKind.COMMIT: decode_commit,
    PacketKind.LEAVE: decode_leave,
    PacketKind.BEACON: decode_beacon,
    PacketKind.WAKE: decode_wake,
    PacketKind.PROBE: decode_probe,
}


class Mutator:
    """Cheap damage: one draw of 64 bits a mutant, cut into what the kinds of damage need."""

    def __init__(self, seed: str) -> None:
        chance = Random(seed)
        self.draw = chance.getrandbits
        self.noise = chance.randbytes(1 << 16)

    def damage(self, packet: bytes, other: bytes) -> bytes:
        draw = self.draw(64)
        size = len(packet)
        at = (draw >> 8) % size
        more = draw >> 32
        match draw & 7:
            case 0 | 1:
                return packet[:at] + bytes((packet[at] ^ 1 << (more & 7),)) + packet[at + 1 :]
            case 2:
                return packet[:at]
            case 3:
                start = more & 0x7FFF
                return packet + self.noise[start : start + 1 + (draw >> 48 & 0xFF)]
            case 4 | 5:
                value = _VALUES[more % len(_VALUES)]
                return packet[:at] + value + packet[at + len(value) :]
            case 6:
                start = more & 0x7FFF
                return packet[:at] + self.noise[start : start + size - at]
            case _:
                return packet[:at] + other[at:]


class Fuzz:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.failures: list[dict[str, str]] = []
        self.lies: dict[str, int] = {}
        self._chunk = 0

    def run(self, packets: int, progress: Callable[[int], None] = lambda done: None) -> dict[str, object]:
        begin = time.perf_counter()
        done, rss = 0, 0
        while done < packets:
            size = min(CHUNK, packets - done)
            self._chunk += 1
            self._against_one_group(size)
            done += size
            rss = rss or _rss_mib()
            progress(done)
        growth = _rss_mib() - rss
        if growth > RSS_GROWTH_MIB_MAX:
            self.failures.append({"where": "memory", "error": f"{growth} MiB more than after the first chunk"})
        seconds = time.perf_counter() - begin
        return {
            "packets": done,
            "seed": self.seed,
            "seconds": round(seconds, 1),
            "packets_per_s": int(done / seconds),
            "counts": dict(sorted(self.counts.items())),
            "rss_mib": _rss_mib(),
            "rss_growth_mib": growth,
            "lies": self.lies,
            "failures": self.failures[:20],
        }

    def _against_one_group(self, size: int) -> None:
        world = World(seed=f"{self.seed}/{self._chunk}", networks=1 + self._chunk % 2)
        world.form()
        for number in range(30):
            world.submit("abc"[number % 3], b"%d" % number * 20)
        world.run(5_000 * (self._chunk % 40))
        if self._chunk % 4 == 0:
            world.kill("c")
            world.run(150_000 * (self._chunk % 4))
        half = size // 2
        mutator = Mutator(f"{self.seed}/{self._chunk}/mutants")
        self._guard(world, mutator, half)
        self._engine(world, mutator, size - half)

    def _guard(self, world: World, mutator: Mutator, count: int) -> None:
        """Sealed packets that the target would open and HELLOs that it would heed, damaged: none may come through."""
        target, peer = world.processes["a"], world.processes["b"]
        samples = [peer.guard.seal(text, len(text))[0] for text in _plain(world)]
        samples += [peer.guard.seal(text, len(text), target.engine.name)[0] for text in _plain(world)]
        samples += [sent.data for sent in world.sent if sent.kind == "HELLO"][-6:]
        trains_of_six = [peer.guard.seal(text * 6, len(text)) for text in _plain(world) if len(text) < 100]
        samples += [train for train, _ in trains_of_six]
        genuine = {train[at : at + size] for train, size in trains_of_six for at in range(0, len(train), size)}
        genuine.update(samples)
        before = {name: target.guard.counters[name] for name in (*REFUSED, "own")}
        receive, damage, draw = target.guard.receive, mutator.damage, mutator.draw
        total = len(samples)
        now = world.now
        opened = target.guard.counters["opened"]
        for _ in range(count):
            pick = draw(32)
            mutant = damage(samples[pick % total], samples[(pick >> 16) % total])
            if mutant in genuine:
                self.counts["undamaged"] += 1
                continue
            segment = len(mutant) if pick & 7 << 24 else 1 + (pick >> 10) % 200
            try:
                trains = receive(now, mutant, segment, "x")
            except Exception as error:
                self._fail("guard", error, mutant)
                continue
            if trains and segment >= len(mutant):
                self.failures.append({"where": "guard", "error": "opened", "packet": mutant.hex()})
        self.counts["sealed mutants"] += count
        # A damaged train may hold sound packets: those are the only ones that may have been opened.
        self.counts["sound packets in damaged trains"] += target.guard.counters["opened"] - opened
        for name, value in before.items():
            self.counts[f"guard {name}"] += target.guard.counters[name] - value

    def _engine(self, world: World, mutator: Mutator, count: int) -> None:
        """Malformed plaintext, sealed by a member: it has to be refused by the decoders, and is told to the engine."""
        target, peer = world.processes["a"], world.processes["b"]
        samples = [(text, len(text)) for text in _plain(world)]
        trains = _trains(world)
        samples += trains * max(1, len(samples) // (2 * len(trains)))
        total = len(samples)
        damage, draw, seal, receive = mutator.damage, mutator.draw, peer.guard.seal, target.guard.receive
        tell = target.receive
        opened = 0
        for number in range(count):
            pick = draw(32)
            sample, size = samples[pick % total]
            mutant = damage(sample, samples[(pick >> 16) % total][0]) or b"\0"
            for data, segment, _ in receive(world.now, *seal(mutant, size if size < len(sample) else len(mutant))):
                opened += 1
                try:
                    if not pick >> 29:
                        segment = 1 + (pick >> 10) % 100
                    tell(world.now, data, segment, 0)
                    if not number & 15:
                        self._host(world, target)
                except AssertionError as error:
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    place = f"{where.filename.rpartition('/')[2]}:{where.lineno} {error or where.line}"
                    self.lies[place] = self.lies.get(place, 0) + 1
                    if self._is_malformed(data):
                        self._fail("engine", error, data)
                    return self._engine_again(count - number - 1, mutator)
                except Exception as error:
                    self._fail("engine", error, data)
                    return self._engine_again(count - number - 1, mutator)
        self.counts["plaintext mutants"] += count
        self.counts["engine malformed"] += target.totem.state.counters["malformed"]
        if opened != count:
            self.failures.append({"where": "guard", "error": f"{count} packets of a member, {opened} opened"})
        return None

    def _engine_again(self, left: int, mutator: Mutator) -> None:
        """The rest of a chunk against another group, after an engine has stopped at an assertion."""
        self.counts["engines made anew"] += 1
        world = World(seed=f"{self.seed}/{self._chunk}/{left}", networks=1 + self._chunk % 2)
        world.form()
        if left:
            self._engine(world, mutator, left)

    def _host(self, world: World, process: Process) -> None:
        """Time goes on for the target, and its writes become durable; what it sends goes nowhere."""
        world.now += 200
        engine = process.engine
        if engine.deadline is not None and engine.deadline <= world.now:
            engine.timer(world.now)
        effects: list[Effect] = engine.take_effects()
        for effect in effects:
            if isinstance(effect, Persist):
                engine.written(world.now, effect.write_id)
            elif isinstance(effect, Unicast) and effect.to == engine.name:
                engine.receive(world.now, effect.packet, len(effect.packet))

    def _is_malformed(self, data: bytes) -> bool:
        decoder = _DECODERS.get(data[3]) if len(data) > 3 and data[:3] == b"OC\1" else None
        try:
            return decoder is None or decoder(data) is None
        except WireError:
            return True

    def _fail(self, where: str, error: Exception, packet: bytes) -> None:
        text = "".join(traceback.format_exception(error)[-3:])
        self.failures.append({"where": where, "error": text, "packet": packet.hex()})


def _plain(world: World) -> list[bytes]:
    """Plaintext packets of all kinds that were sent in this world, the latest ones."""
    found: dict[str, list[bytes]] = {}
    for sent in reversed(world.sent):
        kept = found.setdefault(sent.kind, [])
        if sent.kind != "HELLO" and len(kept) < SAMPLES_PER_KIND:
            kept.append(sent.plain[: sent.segment - 36])
    prefix = next(sent.plain[4:20] for sent in reversed(world.sent) if sent.kind == "TOKEN")
    for kind in (PacketKind.LEAVE, PacketKind.WAKE):
        tail = b"\1b" if kind is PacketKind.LEAVE else bytes(range(8))
        found.setdefault(kind.name, []).append(b"OC\1" + bytes((kind,)) + prefix + tail)
    return [text for texts in found.values() for text in texts]


def _trains(world: World) -> list[tuple[bytes, int]]:
    """Trains of several packets, as `b` could send them next in the ring of `a`, and their packets' size."""
    ring = world.processes["a"].totem.state.active
    found = []
    for packet_bytes, size, service in product((90, 400), (1, 20, 500), Service):
        packer = Packer(node_key(NodeId("b")), packet_bytes)
        packer.add([bytes(size)] * (2_000 // size), service)
        found.append((packer.burst(ring.prefix, ring.high_seq + 1, 5).stretches[0], packet_bytes))
    return found


def _rss_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--packets", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    args = options.parse_args()
    begin = time.perf_counter()

    def progress(done: int) -> None:
        if sys.stderr.isatty():
            rate = done / (time.perf_counter() - begin)
            print(f"\r{done:,} of {args.packets:,}, {rate:,.0f} a second ", end="", file=sys.stderr, flush=True)

    result = Fuzz(args.seed).run(args.packets, progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(json.dumps(result, indent=2))
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
