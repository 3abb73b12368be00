"""The security layer alone, on one core: packets sealed and opened per second, and what refusing one costs.

    python bench/seal.py [--seconds S] [--cipher aes-256-gcm|chacha20-poly1305]

Trains of 40 × 1,400 bytes (unequal last packet in one of the rows), single packets of 1,400 bytes and of a token's
size, and packets that are refused: forged, replayed, of an unknown session, forged HELLOs. Prints JSON. `copy` is the
same loop around a Guard that does nothing, `PlainGuard`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

from ordercast.wire.guard import Guard, PlainGuard
from ordercast.wire.ids import NodeId
from ordercast.wire.keys import Cipher, GroupKey
from ordercast.wire.seal import OVERHEAD_BYTES

PACKET = 1400
TRAIN = 40
TOKEN = 66


def make_pair(cipher: Cipher) -> tuple[Guard, Guard]:
    """Two guards that have accepted each other."""
    key = GroupKey(os.urandom(32), cipher)
    pair = Guard("bench", NodeId("a"), [key], os.urandom), Guard("bench", NodeId("b"), [key], os.urandom)
    now = 0
    while not all(guard.proven() for guard in pair):
        now += 1000
        for guard, other in (pair, pair[::-1]):
            for _, packet in guard.take_packets(now):
                other.receive(now, packet, len(packet))
    return pair


def rate(work: Callable[[int], None], rounds: int, packets_per_round: int, seconds: float) -> int:
    """The best packets per second of a few stretches: other load on the machine only ever takes away."""
    best = 0.0
    until = time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        work(rounds)
        end = time.perf_counter()
        best = max(best, rounds * packets_per_round / (end - begin))
        if end > until:
            return int(best)


def bench_seal(guard: Guard, data: bytes, segment: int, seconds: float) -> int:
    def work(rounds: int) -> None:
        for _ in range(rounds):
            guard.seal(data, segment)

    count = -(-len(data) // segment)
    return rate(work, 4000 // count, count, seconds)


def bench_open(pair: tuple[Guard, Guard], data: bytes, segment: int, seconds: float) -> int:
    """Sealing is outside of what is timed: a batch is sealed, then opened against the clock."""
    a, b = pair
    count = -(-len(data) // segment)
    rounds = 4000 // count
    best = 0.0
    until = time.perf_counter() + 2 * seconds
    while time.perf_counter() < until:
        batch = [a.seal(data, segment) for _ in range(rounds)]
        opened = b.counters["opened"]
        begin = time.perf_counter()
        for sealed, size in batch:
            b.receive(0, sealed, size)
        best = max(best, rounds * count / (time.perf_counter() - begin))
        assert b.counters["opened"] == opened + rounds * count, "a packet was not opened"
    return int(best)


def bench_refused(guard: Guard, packet: bytes, counter: str, seconds: float) -> int:
    def work(rounds: int) -> None:
        for _ in range(rounds):
            guard.receive(0, packet, len(packet))

    before = guard.counters[counter]
    result = rate(work, 2000, 1, seconds)
    assert guard.counters[counter] > before, f"the packet was not counted as {counter}"
    return result


def bench_plain(data: bytes, segment: int, seconds: float) -> int:
    guard = PlainGuard("bench", NodeId("a"))

    def work(rounds: int) -> None:
        for _ in range(rounds):
            guard.receive(0, *guard.seal(data, segment))

    return rate(work, 4000, -(-len(data) // segment), seconds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=1.0, help="for each figure")
    options.add_argument("--cipher", choices=[cipher.value for cipher in Cipher], default=Cipher.AES_256_GCM.value)
    args = options.parse_args()
    pair = make_pair(Cipher(args.cipher))
    a, b = pair
    train, token = os.urandom(PACKET * TRAIN), os.urandom(TOKEN)
    sealed = a.seal(train[:PACKET], PACKET)[0]
    hello = next(packet for _, packet in a.take_packets(10**9))
    forms = {
        "train_40x1400": (train, PACKET),
        "train_40x1400_last_700": (train[:-700], PACKET),
        "single_1400": (train[:PACKET], PACKET),
        "single_66": (token, TOKEN),
    }
    result: dict[str, object] = {"cipher": args.cipher, "overhead_bytes": OVERHEAD_BYTES, "unit": "packets per second"}
    result["seal"] = {form: bench_seal(a, *what, args.seconds) for form, what in forms.items()}
    result["open"] = {form: bench_open(pair, *what, args.seconds) for form, what in forms.items()}
    result["plain"] = {form: bench_plain(*what, args.seconds) for form, what in forms.items()}
    forged = sealed[:12] + (2**40).to_bytes(8, "little") + sealed[20:]
    b.receive(0, sealed, len(sealed))
    result["refused"] = {
        "forged_1400": bench_refused(b, forged, "forged", args.seconds),
        "replayed_1400": bench_refused(b, sealed, "replayed", args.seconds),
        "unproven_1400": bench_refused(b, sealed[:6] + bytes(6) + sealed[12:], "unproven", args.seconds),
        "unknown_key_1400": bench_refused(b, sealed[:4] + bytes(8) + sealed[12:], "unknown_key", args.seconds),
        "forged_hello": bench_refused(b, hello[:-1] + bytes((hello[-1] ^ 1,)), "forged", args.seconds),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
