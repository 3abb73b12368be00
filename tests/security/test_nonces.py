"""A nonce never repeats under a key: sender, boot epoch, counter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ordercast.wire import keys
from ordercast.wire.guard import Guard
from ordercast.wire.ids import NodeId
from ordercast.wire.seal import COUNTER_MAX, HEADER_BYTES, OVERHEAD_BYTES, CounterExhausted, Sealer

from .world import World, make_guard, make_key

LIVES = 6
CHILD = """
import os, sys
from ordercast.wire.ids import NodeId
from ordercast.wire.keys import GroupKey
from ordercast.wire.guard import Guard
from ordercast.wire.seal import HEADER_BYTES

guard = Guard("orders", NodeId("a"), [GroupKey(bytes(32))], os.urandom)
while True:
    sealed, segment = guard.seal(bytes(64 * 20), 64)
    sys.stdout.buffer.write(b"".join(sealed[at : at + HEADER_BYTES] for at in range(0, len(sealed), segment)))
"""


class Watched:
    """The cipher, with all pairs of key and nonce under which it has sealed."""

    pairs: Counter[tuple[bytes, bytes]]
    real = keys.AESGCM

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._real = Watched.real(key)
        self.decrypt = self._real.decrypt

    def encrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
        Watched.pairs[self.key, nonce] += 1
        return self._real.encrypt(nonce, data, associated)


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[bytes, bytes]]:
    monkeypatch.setattr(keys, "AESGCM", Watched)
    Watched.pairs = Counter()
    return Watched.pairs


def test_no_pair_of_key_and_nonce_repeats_while_members_are_killed_and_restarted(pairs) -> None:
    world = World("abc")
    for life in range(30):
        name = "abc"[life % 3]
        world.submit(name, *[b"%d" % number for number in range(50)])
        world.run(20_000 + 997 * life)
        world.kill(name)
        world.run(1_000 * life)
        world.start(name)
        world.run(30_000)
    world.form(10_000_000)
    assert sum(pairs.values()) > 500
    assert max(pairs.values()) == 1
    assert len({key for key, _ in pairs}) == 33


def test_no_pair_repeats_when_keys_rotate_and_come_back(pairs) -> None:
    old, new = make_key("old"), make_key("new")
    guard = make_guard("a", old)
    for _ in range(20):
        guard.add_key(new)
        guard.seal(bytes(100), 10)
        guard.use_key(new)
        guard.seal(bytes(100), 10)
        guard.retire_key(old)
        old, new = new, old
    assert sum(pairs.values()) == 400
    assert max(pairs.values()) == 1


def test_two_processes_that_claim_one_name_share_no_pair(pairs) -> None:
    for seed in range(50):
        guard = make_guard("a", seed=seed)
        guard.take_packets(0)
        guard.seal(bytes(50), 10)
    assert max(pairs.values()) == 1


def test_no_header_repeats_over_kills_by_signal() -> None:
    """Real processes with the system's entropy, sealing without a pause, killed at any point and started again."""
    seen: set[bytes] = set()
    prefixes: set[bytes] = set()
    environment = {**os.environ, "PYTHONPATH": str(Path(keys.__file__).parents[2])}
    for _ in range(LIVES):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, env=environment)
        assert child.stdout is not None
        headers = child.stdout.read(HEADER_BYTES * 5_000)
        child.send_signal(signal.SIGKILL)
        child.stdout.close()
        assert child.wait(30) == -signal.SIGKILL
        found = [headers[at : at + HEADER_BYTES] for at in range(0, len(headers), HEADER_BYTES)]
        assert len(found) == 5_000
        assert not seen & set(found)
        seen |= set(found)
        prefixes |= {header[:12] for header in found}
    assert len(seen) == LIVES * 5_000
    assert len(prefixes) == LIVES


def test_two_hellos_are_never_equal() -> None:
    guard = make_guard("a")
    hellos = [out.packet for second in range(100) for out in guard.take_packets(second * 1_000_000)]
    assert len(set(hellos)) == len(hellos) == 100


def test_counters_run_on_over_trains_packets_and_hellos() -> None:
    guard = make_guard("a")
    counters: list[int] = []
    for second in range(5):
        sealed, segment = guard.seal(bytes(95), 10)
        counters += [int.from_bytes(sealed[at + 12 : at + 20], "little") for at in range(0, len(sealed), segment)]
        guard.take_packets(second * 1_000_000)
        sealed, _ = guard.seal(b"token", 10, NodeId("b"))
        counters.append(int.from_bytes(sealed[12:20], "little"))
    assert counters == sorted(set(counters))
    assert len(counters) == 55


def test_a_session_ends_before_its_counter_does() -> None:
    sealer = Sealer(keys.AESGCM(bytes(32)).encrypt, bytes(12))
    sealer.next = COUNTER_MAX - 11
    sealed, segment = sealer.seal_train(bytes(1000), 100)
    assert (len(sealed), segment) == (10 * (100 + OVERHEAD_BYTES), 100 + OVERHEAD_BYTES)
    with pytest.raises(CounterExhausted, match="restart it"):
        sealer.seal_train(bytes(1000), 100)
    sealer.take_counter()
    for _ in range(2):
        with pytest.raises(CounterExhausted):
            sealer.seal_train(b"x", 1)


def test_a_session_key_depends_on_all_that_it_should(pairs) -> None:
    epochs = {"x": bytes(16), "y": bytes(15) + b"\1"}

    def first_pair(group: str, name: str, secret: int, epoch: str) -> tuple[bytes, bytes]:
        pairs.clear()
        guard = Guard(group, NodeId(name), [keys.GroupKey(bytes((secret,)) * 32)], lambda size: epochs[epoch][:size])
        guard.seal(b"x", 1)
        (pair,) = pairs
        return pair

    variants = [("g", "a", 0, "x"), ("h", "a", 0, "x"), ("g", "b", 0, "x"), ("g", "a", 1, "x"), ("g", "a", 0, "y")]
    assert len({first_pair(*variant)[0] for variant in variants}) == len(variants)
    assert first_pair("ga", "b", 0, "x")[0] != first_pair("g", "ab", 0, "x")[0]
