"""Packets read by their layout and packets read one by one are the same, damaged ones too."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.engine.assemble import Assembler, follow
from ordercast.engine.contract import Run
from ordercast.wire import train as trains
from ordercast.wire.ids import NodeId, RingId, Service, node_key
from ordercast.wire.layout import Malformed, WireError
from ordercast.wire.pack import Packer
from ordercast.wire.train import HEADER_BYTES, LAYOUTS_MAX, Layout, Train, parse_train, ring_prefix

RING = ring_prefix(RingId(4, NodeId("a")))
PACKET_BYTES = 120
Cut = list[tuple[int, int, list[int], bytes, list[int] | None]]

one_size = st.builds(lambda size, count: [size] * count, st.integers(0, 300), st.integers(1, 40))
any_sizes = st.lists(st.integers(0, 100), min_size=1, max_size=40)
bodies = st.one_of(one_size, any_sizes)


def _bursts(sizes: list[int], service: Service, packets: int) -> list[bytes]:
    packer = Packer(node_key(NodeId("a")), PACKET_BYTES)
    packer.add([bytes(at % 251 for at in range(number, number + size)) for number, size in enumerate(sizes)], service)
    bursts, seq = [], 1
    while packer.messages:
        burst = packer.burst(RING, seq, packets)
        seq += burst.count
        for data, marks in zip(burst.stretches, burst.marks, strict=True):
            train = _parsed(data)
            assert isinstance(train, Train)
            assert marks == train.marks, "a sender knows of its packets what a receiver reads"
            bursts.append(data)
    return bursts


def _parsed(data: bytes) -> Train | type[WireError] | None:
    try:
        return parse_train(data, min(PACKET_BYTES, len(data)))
    except WireError as error:
        return type(error)


def _cut(runs: list[Run], *, together: bool) -> Cut | str:
    assembler, found = Assembler(places=True), []
    try:
        at = 0
        while at < len(runs):
            stop = at + 1
            while together and stop < len(runs) and follow(runs[stop - 1], runs[stop]):
                stop += 1
            batch = assembler.feed(*runs[at:stop])
            at = stop
            if batch is not None:
                found.append((batch.first, batch.stamp_us, batch.lengths, batch.blob, batch.places))
    except Malformed as error:
        return str(error)
    return found


def _joined(cut: Cut | str) -> tuple[list[int], bytes, list[int]]:
    assert not isinstance(cut, str)
    return (
        [length for _, _, lengths, _, _ in cut for length in lengths],
        b"".join(blob for _, _, _, blob, _ in cut),
        [place for *_, places in cut for place in places or ()],
    )


@settings(max_examples=200)
@given(bodies, st.sampled_from(Service), st.integers(1, 100))
def test_both_ways_give_the_same_messages(sizes: list[int], service: Service, packets: int) -> None:
    bursts = _bursts(sizes, service, packets)
    with patch.object(Layout, "of", lambda *_: None):
        slowly = _cut(
            [Run(train, 0, train.count) for train in map(_parsed, bursts) if isinstance(train, Train)], together=False
        )
    for data in bursts:
        _parsed(data)  # so that its layout is known, or met once more
    parsed = [_parsed(data) for data in bursts]
    runs = [Run(train, 0, train.count) for train in parsed if isinstance(train, Train)]
    assert _cut(runs, together=False) == slowly
    assert _joined(_cut(runs, together=True)) == _joined(slowly)


@settings(max_examples=200)
@given(bodies, st.integers(2, 64), st.integers(0, 63), st.integers(0, 20), st.integers(-3, 20))
def test_both_ways_refuse_the_same(sizes: list[int], packets: int, where: int, entry: int, change: int) -> None:
    """One length of one packet is another: it still fits if it only makes more of the end padding."""
    data = bytearray(_bursts(sizes, Service.AGREED, packets)[0])
    count = -(-len(data) // PACKET_BYTES)
    at = where % count * PACKET_BYTES + HEADER_BYTES
    entries = int.from_bytes(data[at - 2 : at], "little")
    at += entry % entries * 2
    length = int.from_bytes(data[at : at + 2], "little")
    data[at : at + 2] = max(0, length - change).to_bytes(2, "little")
    damaged = bytes(data)
    with patch.object(Layout, "of", lambda *_: None):
        slowly = _parsed(damaged)
        cut_slowly = _cut([Run(slowly, 0, slowly.count)], together=False) if isinstance(slowly, Train) else None
    _parsed(damaged), _parsed(damaged)
    quickly = _parsed(damaged)
    assert type(quickly) is type(slowly)
    if isinstance(quickly, Train):
        assert _cut([Run(quickly, 0, quickly.count)], together=False) == cut_slowly
    else:
        assert quickly == slowly


def test_a_layout_is_made_when_it_is_met_again() -> None:
    (data,) = _bursts([50] * 10, Service.AGREED, 64)
    with patch.dict(trains._layouts, clear=True):
        first, second = _parsed(data), _parsed(data)
        assert isinstance(first, Train)
        assert isinstance(second, Train)
        assert first.entries is None
        assert second.entries is not None


def test_layouts_met_once_do_not_fill_the_memory() -> None:
    with patch.dict(trains._layouts, clear=True):
        for count in range(1, 2 * LAYOUTS_MAX):
            assert Layout.of(1400, 1400, (count << 16,) * 2) is None
        assert len(trains._layouts) <= LAYOUTS_MAX


@pytest.mark.parametrize(
    "marks",
    [
        (0, 1 << 16),  # no entries
        (1 << 16 | 4, 1 << 16),  # unfinished, and the next one does not go on
        (1 << 16, 1 << 16 | 2),  # goes on with what was finished
        (1 << 16, 1 << 16 | 1),  # agreed, then safe
        (40 << 16, 1 << 16),  # more entries than there is room for
        (1 << 16 | 8, 1 << 16 | 8),  # keys
    ],
)
def test_what_does_not_fit_together_has_no_layout(marks: tuple[int, ...]) -> None:
    with patch.dict(trains._layouts, clear=True):
        assert Layout.of(PACKET_BYTES, PACKET_BYTES, marks) is None
        assert Layout.of(PACKET_BYTES, PACKET_BYTES, marks) is None
