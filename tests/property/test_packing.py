"""What goes into a packer comes out of an assembler, however it is cut on the way."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.engine.assemble import JOIN_BYTES_MAX, Assembler, Batch
from ordercast.engine.contract import Run
from ordercast.wire.ids import NodeId, NodeKey, RingId, Service, node_key
from ordercast.wire.layout import PACKET_BYTES_MAX, Malformed
from ordercast.wire.pack import PACKET_BYTES_MIN, Packer
from ordercast.wire.train import HEADER_BYTES, Train, check_packet, parse_train, ring_prefix, split_packets

SENDER = node_key(NodeId("sender"))
PREFIX = ring_prefix(RingId(4, NodeId("sender")))
Message = tuple[bytes | None, bytes | None, bytes]


@dataclass
class Group:
    """Messages submitted together."""

    messages: list[Message]
    service: Service
    keys: bool
    headers: bool
    stamp: int

    def add_to(self, packer: Packer) -> None:
        keys = [key for key, _, _ in self.messages] if self.keys else None
        headers = [head for _, head, _ in self.messages] if self.headers else None
        packer.add([data for _, _, data in self.messages], self.service, self.stamp, keys, headers)

    @property
    def expected(self) -> list[tuple[Message, Service]]:
        return [
            ((key if self.keys else None, head if self.headers else None, data), self.service)
            for key, head, data in self.messages
        ]

    @property
    def bytes(self) -> int:
        return sum(len(cell or b"") for (message, _) in self.expected for cell in message)


def _blob(size: int) -> bytes:
    return bytes(at * 7 % 256 for at in range(size))


sizes = st.one_of(st.integers(0, 40), st.integers(0, 300), st.sampled_from([0, 27, 28, 29, 30, 31, 1000]))
cells = st.one_of(st.none(), st.integers(0, 50).map(_blob))
messages = st.tuples(cells, cells, sizes.map(_blob))
groups = st.builds(
    Group,
    st.lists(messages, max_size=12),
    st.sampled_from(Service),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**60),
)
packet_sizes = st.one_of(st.integers(PACKET_BYTES_MIN, 400), st.just(1400))


def _records(batch: Batch) -> list[tuple[Message, Service]]:
    return [(record, batch.service) for record in batch.records()]


def _trains(data: bytes, packet_bytes: int) -> Train:
    train = parse_train(data, min(packet_bytes, len(data)))
    assert train is not None
    return train


@settings(max_examples=150)
@given(
    st.lists(groups, max_size=6),
    packet_sizes,
    st.lists(st.integers(1, 5), min_size=1),
    st.data(),
    st.integers(1, 2**61),
)
def test_messages_in_are_messages_out(
    submitted: list[Group], packet_bytes: int, limits: list[int], data: st.DataObject, first_seq: int
) -> None:
    packer, assembler = Packer(SENDER, packet_bytes), Assembler()
    for group in submitted:
        group.add_to(packer)
    expected = [message for group in submitted for message in group.expected]
    assert (packer.messages, packer.bytes) == (len(expected), sum(group.bytes for group in submitted))
    out: list[tuple[Message, Service]] = []
    seq, at, finished = first_seq, 0, 0
    while packer.messages:
        waiting = packer.packets_waiting()
        assert waiting > 0
        limit = limits[at % len(limits)]
        at += 1
        burst = packer.burst(PREFIX, seq, limit)
        assert burst.first == finished + 1
        assert 0 < burst.count <= limit
        finished += burst.finished
        for stretch in burst.stretches:
            train = _trains(stretch, packet_bytes)
            assert train.first_seq == seq
            assert all(len(train.packet(s)) == packet_bytes for s in range(train.first_seq, train.last_seq))
            assert HEADER_BYTES < len(train.packet(train.last_seq)) <= packet_bytes
            seq += train.count
            cut = 0
            while cut < train.count:
                stop = data.draw(st.integers(cut + 1, train.count), label="run cut")
                batch = assembler.feed(Run(train, cut, stop))
                if batch is not None:
                    assert batch.first == len(out) + 1
                    assert batch.sender_key == SENDER
                    out += _records(batch)
                cut = stop
        assert len(out) == finished
    assert out == expected
    assert (packer.messages, packer.bytes, assembler.pending_bytes) == (0, 0, 0)
    assert packer.packets_waiting() == 0


def test_a_large_message_is_joined_by_who_reads_it() -> None:
    """And not by who feeds, which is the thread that passes on the token."""
    packer, assembler, text = Packer(SENDER, 60_000), Assembler(), bytes(range(256)) * (JOIN_BYTES_MAX // 128)
    packer.add([b"small", text, b"another"], Service.AGREED, 0)
    batches: list[Batch] = []
    for stretch in packer.burst(PREFIX, 1, 1000).stretches:
        train = _trains(stretch, 60_000)
        batch = assembler.feed(Run(train, 0, train.count))
        batches += [] if batch is None else [batch]
    sizes = [batch.size for batch in batches]
    assert any(batch.pieces for batch in batches)
    assert sum(sizes) == len(text) + 12
    assert [body for batch in batches for body in batch] == [b"small", text, b"another"]
    assert [len(batch.blob) for batch in batches] == [batch.size for batch in batches] == sizes
    assert not any(batch.pieces for batch in batches)


@given(st.lists(groups, max_size=4), packet_sizes)
def test_packets_received_one_by_one_give_the_same(submitted: list[Group], packet_bytes: int) -> None:
    packer, assembler = Packer(SENDER, packet_bytes), Assembler()
    for group in submitted:
        group.add_to(packer)
    out: list[tuple[Message, Service]] = []
    for stretch in packer.burst(PREFIX, 1, 1000).stretches:
        for packet in split_packets(stretch, packet_bytes):
            batch = assembler.feed(Run(_trains(packet, packet_bytes), 0, 1))
            out += _records(batch) if batch is not None else []
    assert out == [message for group in submitted for message in group.expected]


@given(st.lists(groups, min_size=1, max_size=4), packet_sizes, st.integers(1, 6))
def test_a_new_ring_sends_unfinished_messages_whole(submitted: list[Group], packet_bytes: int, limit: int) -> None:
    """`Packer.void` and `Assembler.reset`: what began on the old ring is void there and comes again on the new one."""
    packer, assembler = Packer(SENDER, packet_bytes), Assembler()
    for group in submitted:
        group.add_to(packer)
    out: list[tuple[Message, Service]] = []
    for ring in (4, 8):
        prefix = ring_prefix(RingId(ring, NodeId("sender")))
        burst = packer.burst(prefix, 1, limit if ring == 4 else 10_000)
        assert burst.first == 1
        for stretch in burst.stretches:
            train = _trains(stretch, packet_bytes)
            batch = assembler.feed(Run(train, 0, train.count))
            out += _records(batch) if batch is not None else []
        before = len(out)
        packer.void()
        assembler.reset()
        assert assembler.pending_bytes == 0
        expected = [message for group in submitted for message in group.expected]
        assert packer.messages == len(expected) - before
        assert packer.bytes == sum(len(cell or b"") for message, _ in expected[before:] for cell in message)
    assert out == [message for group in submitted for message in group.expected]
    assert packer.bytes == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200)), min_size=1, max_size=30))
def test_senders_are_put_together_apart(order: list[tuple[int, int]]) -> None:
    """The pieces of one sender's message may have those of others between them."""
    keys = [NodeKey(1), NodeKey(2), NodeKey(3)]
    packers = [Packer(key, PACKET_BYTES_MIN) for key in keys]
    for sender, size in order:
        packers[sender].add([_blob(size)])
    out: dict[NodeKey, list[bytes]] = {key: [] for key in keys}
    assembler, seq = Assembler(), 1
    while any(packer.messages for packer in packers):
        for packer in packers:
            for stretch in packer.burst(PREFIX, seq, 1).stretches:
                batch = assembler.feed(Run(_trains(stretch, PACKET_BYTES_MIN), 0, 1))
                seq += 1
                if batch is not None:
                    out[batch.sender_key] += batch
    for sender, key in enumerate(keys):
        assert out[key] == [_blob(size) for who, size in order if who == sender]


@given(st.integers(0, 400), st.integers(1, 200))
def test_a_message_is_refused_where_it_outgrows_the_limit(size: int, limit: int) -> None:
    packer, assembler = Packer(SENDER, PACKET_BYTES_MIN), Assembler(limit)
    packer.add([_blob(size)])
    room = PACKET_BYTES_MIN - HEADER_BYTES - 2
    train = _trains(packer.burst(PREFIX, 1, 100).stretches[0], PACKET_BYTES_MIN)
    refused_at = None
    for at in range(train.count):
        try:
            assembler.feed(Run(train, at, at + 1))
        except Malformed:
            refused_at = at
            break
        assert assembler.pending_bytes <= limit
    # A message that needs no second packet takes no memory but that packet's.
    assert (refused_at is not None) == (size > limit and size > room)
    assert refused_at is None or refused_at == limit // room


def test_a_message_that_goes_on_without_a_beginning_is_refused() -> None:
    packer = Packer(SENDER, PACKET_BYTES_MIN)
    packer.add([_blob(100)])
    train = _trains(packer.burst(PREFIX, 1, 100).stretches[0], PACKET_BYTES_MIN)
    with pytest.raises(Malformed):
        Assembler().feed(Run(train, 1, 2))


def test_key_longer_than_its_message_is_refused_when_it_is_read() -> None:
    packer = Packer(SENDER, 200)
    packer.add([b"data"], keys=[b"key"])
    (data,) = packer.burst(PREFIX, 1, 1).stretches
    lie = data[: HEADER_BYTES + 2] + (8).to_bytes(4, "little") + data[HEADER_BYTES + 6 :]
    train = parse_train(lie, len(lie))
    assert train is not None
    batch = Assembler().feed(Run(train, 0, 1))
    assert batch is not None
    with pytest.raises(Malformed):
        list(batch)


def test_an_unfinished_message_is_forgotten_at_a_reset() -> None:
    packer, assembler = Packer(SENDER, PACKET_BYTES_MIN), Assembler()
    packer.add([_blob(100)])
    train = _trains(packer.burst(PREFIX, 1, 100).stretches[0], PACKET_BYTES_MIN)
    assembler.feed(Run(train, 0, 1))
    assert assembler.pending_bytes > 0
    assembler.reset()
    assert assembler.pending_bytes == 0
    with pytest.raises(Malformed):
        assembler.feed(Run(train, 1, 2))


@pytest.mark.parametrize("spare", range(1, 11))
def test_packets_too_full_for_another_entry_are_padded_and_stay_in_one_train(spare: int) -> None:
    packer = Packer(SENDER, 200)
    room = 200 - HEADER_BYTES - 10
    packer.add([_blob(room - spare)] * 5, keys=[None] * 5, headers=[None] * 5)
    burst = packer.burst(PREFIX, 1, 5)
    assert (burst.finished, len(burst.stretches), len(burst.stretches[0])) == (5, 1, 5 * 200)


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="column"):
        Packer(SENDER, 200).add([b"a", b"b"], keys=[None])


@pytest.mark.parametrize("size", [0, PACKET_BYTES_MIN - 1, PACKET_BYTES_MAX + 1])
def test_packet_sizes_out_of_range_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="packets"):
        Packer(SENDER, size)


def test_nothing_submitted_is_nothing_queued() -> None:
    packer = Packer(SENDER, 200)
    packer.add([])
    packer.void()
    assert (packer.messages, packer.packets_waiting()) == (0, 0)
    assert packer.burst(PREFIX, 1, 5).count == 0


def test_the_largest_packets_hold_very_many_empty_messages() -> None:
    packer = Packer(SENDER, PACKET_BYTES_MAX)
    packer.add([b""] * 100_000)
    out = 0
    for stretch in packer.burst(PREFIX, 1, 10).stretches:
        for packet in split_packets(stretch, PACKET_BYTES_MAX):
            check_packet(packet, 0, len(packet))
        train = _trains(stretch, PACKET_BYTES_MAX)
        batch = Assembler().feed(Run(train, 0, train.count))
        assert batch is not None
        out += len(batch)
    assert out == 100_000
