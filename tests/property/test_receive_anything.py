"""Whatever bytes come, in whatever state: `Totem.receive` drops what is malformed, counts it, and changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring import Bench, ring_of, still
from stages import committed, gathering, recovering
from wire_samples import packets

from ordercast.engine.totem import Phase
from ordercast.engine.totem.engine import Totem
from ordercast.wire.layout import PacketKind


def _operational() -> Totem:
    bench = still("abc")
    bench.hear("b", "a", 1, "x")
    bench.say("b", "y")
    return bench["b"].engine


def _resting() -> Totem:
    bench = ring_of("abc")
    bench.until(lambda: bench["a"].state.held is not None)
    return bench["a"].engine


def _left() -> Totem:
    bench = ring_of("a")
    bench["a"].engine.leave(bench.now)
    bench.take(bench["a"])
    bench.until(lambda: not bench["a"].running)
    return bench["a"].engine


STAGES: dict[str, tuple[Phase, Callable[[], Totem]]] = {
    "starting": (Phase.STARTING, lambda: Bench("b", slow_disk=True)["b"].engine),
    "gather": (Phase.GATHER, lambda: gathering()["b"].engine),
    "commit": (Phase.COMMIT, lambda: committed()["a"].engine),
    "recovery": (Phase.RECOVERY, lambda: recovering()["b"].engine),
    "operational": (Phase.OPERATIONAL, _operational),
    "resting": (Phase.OPERATIONAL, _resting),
    "stopped": (Phase.STOPPED, _left),
}


def _genuine() -> list[bytes]:
    """Packets of the very rings that the stages are in, of all kinds, and the samples, which are of none of them."""
    bench = ring_of("abc")
    bench.say("b", "m1", "m2")
    bench.quiet()
    bench["c"].engine.leave(bench.now)
    bench.take(bench["c"])
    bench.run(300_000)
    found: dict[int, list[bytes]] = {}
    for process in bench.processes.values():
        for kind in PacketKind:
            found.setdefault(kind, []).extend(process.sent(kind)[-3:])
    return [packet for kind in found.values() for packet in kind] + list(packets().values())


ENGINES: dict[str, Totem] = {}
GENUINE = _genuine()


def _engine(stage: str) -> Totem:
    """A copy of the engine in that state: what one example does the next does not see."""
    if stage not in ENGINES:
        phase, make = STAGES[stage]
        engine = make()
        assert engine.phase is phase
        engine.take_effects()
        ENGINES[stage] = engine
    engine = ENGINES[stage]
    memo = {id(engine.state.rows): engine.state.rows, id(engine.state.row): engine.state.row}
    return copy.deepcopy(engine, memo)


def _drops(engine: Totem, data: bytes, segment: int) -> None:
    phase, now = engine.phase, engine.state.now
    before = engine.state.counters["malformed"]
    deadline = engine.deadline
    engine.receive(now, data, segment)
    assert engine.take_effects() == []
    assert (engine.phase, engine.deadline) == (phase, deadline)
    assert engine.state.counters["malformed"] > before


@pytest.mark.parametrize("stage", STAGES)
def test_every_truncation_of_every_packet_is_dropped(stage: str) -> None:
    engine = _engine(stage)
    for packet in GENUINE:
        for size in range(len(packet)):
            _drops(engine, packet[:size], max(size, 1))


@pytest.mark.parametrize("stage", STAGES)
def test_packets_of_another_version_are_dropped(stage: str) -> None:
    engine = _engine(stage)
    for packet in GENUINE:
        for head in (b"OC\x00", b"OC\x02", b"XY\x01"):
            _drops(engine, head + packet[3:], len(packet))


@pytest.mark.parametrize("stage", STAGES)
def test_packets_of_an_unknown_kind_are_dropped(stage: str) -> None:
    engine = _engine(stage)
    for kind in (0, 8, 9, 255):
        _drops(engine, b"OC\x01" + bytes([kind]) + bytes(60), 64)


@given(st.sampled_from(sorted(STAGES)), st.binary(max_size=400), st.integers(1, 200))
def test_garbage_is_dropped(stage: str, garbage: bytes, segment: int) -> None:
    data = garbage if garbage[:2] != b"OC" else b"oc" + garbage[2:]
    _drops(_engine(stage), data or b"\0", segment)


@given(
    st.sampled_from(sorted(STAGES)), st.sampled_from(range(len(GENUINE))), st.binary(max_size=100), st.integers(4, 80)
)
def test_garbage_behind_a_genuine_head_raises_nothing(stage: str, which: int, garbage: bytes, size: int) -> None:
    data = GENUINE[which][:size] + garbage
    if data[3] in (PacketKind.TOKEN, PacketKind.COMMIT, PacketKind.DATA):
        # A lie that is no malformed packet: who holds the key is trusted. Its last byte is missing here.
        data = data[: len(GENUINE[which]) - 1] if data[3] != PacketKind.DATA else data[:56]
    engine = _engine(stage)
    engine.receive(engine.state.now, data, len(data))


@given(
    st.sampled_from(sorted(STAGES)),
    st.sampled_from([packet for packet in GENUINE if packet[3] not in (1, 2, 4)]),
    st.lists(st.tuples(st.integers(4, 400), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_changed_joins_leaves_beacons_and_wakes_raise_nothing(
    stage: str, packet: bytes, changes: list[tuple[int, int]]
) -> None:
    """Nobody but their sender vouches for them: whatever they say, the engine lives on."""
    data = bytearray(packet)
    for at, mask in changes:
        data[4 + at % (len(data) - 4)] ^= mask
    engine = _engine(stage)
    engine.receive(engine.state.now, bytes(data), len(data))
    for _ in range(20):
        if engine.deadline is None:
            break
        engine.timer(engine.deadline)
        engine.take_effects()


@given(st.sampled_from(sorted(STAGES)), st.sampled_from(range(len(GENUINE))), st.integers(2, 6))
def test_genuine_packets_again_and_again_raise_nothing(stage: str, which: int, copies: int) -> None:
    """Of this ring, of a later one or of a foreign one, in every state."""
    engine = _engine(stage)
    for _ in range(copies):
        engine.receive(engine.state.now, GENUINE[which], len(GENUINE[which]))


@given(st.sampled_from(sorted(STAGES)), st.lists(st.sampled_from(range(len(GENUINE))), min_size=2, max_size=5))
def test_trains_of_several_kinds_are_taken_packet_by_packet(stage: str, which: list[int]) -> None:
    chosen = [GENUINE[at] for at in which]
    segment = max(map(len, chosen))
    chosen = [packet for packet in chosen if len(packet) == segment] * 2
    one, other = _engine(stage), _engine(stage)
    one.receive(one.state.now, b"".join(chosen), segment)
    for packet in chosen:
        other.receive(other.state.now, packet, segment)
    assert one.phase == other.phase
    assert one.state.counters["malformed"] == other.state.counters["malformed"]
    assert one.state.active.my_aru == other.state.active.my_aru


def test_one_bad_packet_in_a_train_does_not_cost_the_others() -> None:
    bench = still("abc")
    good = bench.packets(bench["b"].ring, "a", 1, "x", "y", "z")
    bad = good[1][:52] + b"\xff\xff" + good[1][54:]
    bench.give("b", good[0] + bad + good[2], len(good[0]))
    assert bench["b"].texts == ["x"]
    assert bench["b"].ring.high_seq == 3
    assert bench["b"].state.counters["malformed"] == 1
    bench.give("b", good[1])
    assert bench["b"].texts == ["x", "y", "z"]
