"""`parse_train` takes as a whole exactly what could be taken packet by packet, and fits together."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ordercast.wire.ids import NodeId, RingId, Service, node_key
from ordercast.wire.layout import SEQ_MAX, WireError
from ordercast.wire.pack import PACKET_BYTES_MIN, Packer
from ordercast.wire.train import RING_BYTES, Flag, check_packet, parse_train, ring_prefix, split_packets

RING = ring_prefix(RingId(4, NodeId("a")))
KEPT = ~int(Flag.CONTINUES | Flag.UNFINISHED)
FIELDS = ((4, 8), (12, 8), (20, 8), (28, 8), (36, 8), (44, 8), (52, 2), (54, 2), (56, 2))
"""Where the fields of the header, and the first length, stand and how long they are."""


def _train(bodies: list[int], service: Service, keys: bool, packet_bytes: int, seq: int) -> bytes:
    packer = Packer(node_key(NodeId("a")), packet_bytes)
    packer.add([bytes(size) for size in bodies], service, 77, [b"k"] * len(bodies) if keys else None)
    return packer.burst(RING, seq, 6).stretches[0]


trains = st.builds(
    _train,
    st.lists(st.integers(0, 100), min_size=1, max_size=12),
    st.sampled_from(Service),
    st.booleans(),
    st.sampled_from([PACKET_BYTES_MIN, 90, 120]),
    st.one_of(st.integers(1, 50), st.integers(SEQ_MAX - 8, SEQ_MAX + 2)),
)
values = st.one_of(st.integers(0, 70), st.sampled_from([255, 256, 2**16 - 1, SEQ_MAX, SEQ_MAX + 1, 2**64 - 1]))
changes = st.one_of(
    st.tuples(st.just("field"), st.integers(0, 5), st.sampled_from(FIELDS), values),
    st.tuples(st.just("byte"), st.integers(0, 700), st.just((0, 1)), st.integers(0, 255)),
    st.tuples(st.just("swap"), st.integers(0, 5), st.just((0, 0)), st.integers(0, 5)),
    st.tuples(st.just("cut"), st.integers(0, 120), st.just((0, 0)), st.just(0)),
)


def _change(data: bytes, segment: int, change: tuple[str, int, tuple[int, int], int]) -> bytes:
    what, where, (offset, size), value = change
    out = bytearray(data)
    count = -(-len(data) // segment)
    if what == "field":
        at = where % count * segment + offset
        if at + size <= len(out):
            out[at : at + size] = (value % 256**size).to_bytes(size, "little")
    elif what == "byte":
        out[where % len(out)] = value
    elif what == "swap":
        one, other = where % count * segment, value % count * segment
        a, b = bytes(out[one : one + segment]), bytes(out[other : other + segment])
        if len(a) == len(b):
            out[one : one + segment], out[other : other + segment] = b, a
    else:
        del out[max(1, len(out) - where) :]
    return bytes(out)


def _alone(packet: bytes) -> tuple[int, int, int] | None:
    try:
        return check_packet(packet, 0, len(packet))
    except WireError:
        return None


def _fits(data: bytes, segment: int) -> bool:
    """The plain meaning of a train."""
    packets = list(split_packets(data, segment))
    facts = [_alone(packet) for packet in packets]
    if any(fact is None for fact in facts):
        return False
    known = [fact for fact in facts if fact is not None]
    return (
        len({packet[:RING_BYTES] for packet in packets}) == 1
        and len({sender for sender, _, _ in known}) == 1
        and [seq for _, seq, _ in known] == list(range(known[0][1], known[0][1] + len(known)))
        and len({flags & KEPT for _, _, flags in known}) == 1
    )


@settings(max_examples=300)
@given(trains, st.sampled_from([PACKET_BYTES_MIN, 90, 120]), st.lists(changes, max_size=3))
@example(_train([60], Service.AGREED, False, PACKET_BYTES_MIN, 1), PACKET_BYTES_MIN, [("field", 1, (36, 8), 2**63)])
@example(_train([60], Service.SAFE, False, PACKET_BYTES_MIN, 1), PACKET_BYTES_MIN, [("field", 0, (36, 8), 2**63)])
@example(_train([60], Service.AGREED, False, PACKET_BYTES_MIN, 1), PACKET_BYTES_MIN, [("field", 1, (52, 2), 64)])
@example(_train([60], Service.AGREED, False, PACKET_BYTES_MIN, 1), PACKET_BYTES_MIN, [("field", 0, (54, 2), 256)])
@example(_train([60], Service.SAFE, False, PACKET_BYTES_MIN, 1), PACKET_BYTES_MIN, [("field", 1, (52, 2), 65)])
def test_a_train_is_taken_only_if_its_packets_are(
    data: bytes, segment: int, mutations: list[tuple[str, int, tuple[int, int], int]]
) -> None:
    for mutation in mutations:
        data = _change(data, segment, mutation)
    try:
        train = parse_train(data, segment)
    except WireError:
        assert any(_alone(packet) is None for packet in split_packets(data, segment))
        return
    if train is None:
        return
    assert _fits(data, segment)
    packets = list(split_packets(data, segment))
    facts = [check_packet(packet, 0, len(packet)) for packet in packets]
    assert (train.count, train.first_seq, train.last_seq) == (len(packets), facts[0][1], facts[-1][1])
    assert train.sender == facts[0][0]
    assert (train.service is Service.SAFE) == bool(facts[0][2] & Flag.SAFE)
    assert [train.packet(seq) for seq in range(train.first_seq, train.last_seq + 1)] == packets
    assert train.packets(train.first_seq, train.last_seq) == data


@given(trains, st.sampled_from([PACKET_BYTES_MIN, 90, 120]))
def test_what_fits_together_is_one_train(data: bytes, segment: int) -> None:
    """Short of the last numbers of all, where it may be looked at packet by packet."""
    if _fits(data, segment):
        seq = check_packet(data, 0, min(len(data), segment))[1]
        assert parse_train(data, segment) is not None or seq > SEQ_MAX - 8
