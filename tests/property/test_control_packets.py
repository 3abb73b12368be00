"""What is encoded is decoded as it was, for all control packets an engine may send."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from wire_samples import decode

from ordercast.wire.ids import NO_NODE, NodeId, NodeKey, RingId, node_key, ring_digest
from ordercast.wire.layout import SEQ_MAX
from ordercast.wire.totem import (
    RTR_RANGES_MAX,
    Beacon,
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    Token,
    Wake,
    decode_ring_record,
    encode_ring_record,
)

names = (
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=16)
    .filter(str.isprintable)
    .map(NodeId)
)
numbers = st.one_of(st.integers(0, 200), st.integers(0, SEQ_MAX))
digests = st.integers(0, 2**64 - 1)
keys = st.integers(1, 2**64 - 1).map(NodeKey)
counts = st.integers(0, 2**32 - 1)
ring_ids = st.builds(RingId, numbers, names, counts)


@st.composite
def tokens(draw: st.DrawFn) -> Token:
    seq = draw(numbers)
    rtr: list[tuple[int, int]] = []
    at = 0
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=RTR_RANGES_MAX)):
        if at + gap + length - 1 > seq:
            break
        rtr.append((at + gap, length))
        at += gap + length - 1
    aru = draw(st.integers(0, seq))
    owner = draw(st.one_of(st.just(NO_NODE), keys))
    token_seq, fcc, backlog = draw(numbers), draw(counts), draw(counts)
    flags = draw(st.booleans()), draw(st.booleans())
    return Token(draw(numbers), draw(digests), token_seq, seq, aru, owner, fcc, backlog, *flags, rtr)


@st.composite
def joins(draw: st.DrawFn) -> Join:
    members = draw(st.sets(names, min_size=1, max_size=20))
    sender = draw(st.sampled_from(sorted(members)))
    failed = draw(st.sets(st.sampled_from(sorted(members)))) - {sender}
    return Join(sender, frozenset(members), frozenset(failed), draw(numbers), draw(st.integers(0, 0xFFFF)))


@st.composite
def commits(draw: st.DrawFn) -> CommitToken:
    members = sorted(draw(st.sets(names, min_size=1, max_size=12)))
    rotation = draw(st.sampled_from((1, 2)))
    entries = []
    for name in members:
        aru = draw(numbers)
        filled = rotation == 2 or draw(st.booleans())
        high = draw(st.integers(0, aru))
        entries.append(CommitEntry(name, filled, draw(ring_ids), aru, high, draw(st.booleans()), draw(counts)))
    index = draw(st.integers(0, len(members) - 1))
    return CommitToken(draw(st.integers(1, SEQ_MAX)), draw(counts), rotation, index, entries)


leaves = st.builds(Leave, numbers, digests, names)
wakes = st.builds(Wake, numbers, digests, keys)
beacons = st.builds(
    Beacon, numbers, digests, names, st.frozensets(keys, min_size=1, max_size=20), st.frozensets(keys, max_size=20)
)


@given(st.one_of(tokens(), joins(), commits(), leaves, wakes, beacons))
def test_control_packets_go_round(packet: Token | Join | CommitToken | Leave | Wake | Beacon) -> None:
    assert decode(packet.encode()) == packet


@given(numbers, counts)
def test_ring_records_go_round(number: int, nonce: int) -> None:
    assert decode_ring_record(encode_ring_record(number, nonce)) == (number, nonce)


@given(st.sets(ring_ids, min_size=2, max_size=2))
def test_ring_identifiers_differ_in_their_text_and_digest(rings: set[RingId]) -> None:
    one, other = rings
    assert ring_digest(one) != ring_digest(other)


@given(st.sets(names, min_size=2, max_size=2))
def test_names_differ_in_their_keys(pair: set[NodeId]) -> None:
    one, other = pair
    assert node_key(one) != node_key(other) != NO_NODE
