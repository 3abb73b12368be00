"""Every packet is authenticated and encrypted, its header bound; lengths are checked before use."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from ordercast.wire.guard import REFUSED, Guard, PlainGuard
from ordercast.wire.ids import NodeId, node_key
from ordercast.wire.keys import Cipher, GroupKey
from ordercast.wire.layout import PACKET_BYTES_MAX
from ordercast.wire.seal import HEADER_BYTES, HELLO_BYTES_MAX, OVERHEAD_BYTES

from .samples import HELLOS, KINDS, hello_case, plain
from .world import exchange, make_guard, make_key, make_pair, remembered

MEMORY_MAX = 256 * 1024


def flips(packet: bytes):
    for at in range(len(packet)):
        for bit in range(8):
            yield packet[:at] + bytes((packet[at] ^ 1 << bit,)) + packet[at + 1 :]


def refused(guard: Guard) -> int:
    return sum(guard.counters[name] for name in REFUSED)


def show_nothing_changes(guard: Guard, packets) -> None:
    """Each packet is refused and counted once, nothing is opened, answered, kept or changed."""
    guard.take_packets(0)
    before, dropped = remembered(guard), refused(guard)
    expected = dropped
    tracemalloc.start()
    try:
        for packet in packets:
            assert guard.receive(0, packet, len(packet), "x") == []
            expected += 1
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    assert refused(guard) == expected
    assert remembered(guard) == before
    assert guard.take_packets(0) == []


@pytest.mark.parametrize("to", [None, NodeId("b")], ids=["for all", "for one"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_a_packet_changes_nothing(kind: str, to: NodeId | None) -> None:
    a, b = make_pair()
    sealed, segment = a.seal(plain(kind), 65_000, to)
    assert segment == len(sealed) == len(plain(kind)) + OVERHEAD_BYTES
    show_nothing_changes(b, flips(sealed))
    assert b.receive(0, sealed, segment) == [(plain(kind), len(plain(kind)), node_key(NodeId("a")))]


@pytest.mark.parametrize("form", HELLOS)
def test_a_flipped_bit_in_a_hello_changes_nothing(form: str) -> None:
    guard, packet = hello_case(form)
    show_nothing_changes(guard, flips(packet))
    before = remembered(guard)
    guard.receive(0, packet, len(packet), "x")
    assert remembered(guard) != before


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_or_extended_packet_is_refused(kind: str) -> None:
    a, b = make_pair()
    sealed, segment = a.seal(plain(kind), 65_000)
    show_nothing_changes(b, (sealed[:size] for size in range(segment)))
    show_nothing_changes(b, (sealed + bytes(more) for more in range(1, 40)))
    assert len(b.receive(0, sealed, segment)) == 1


@pytest.mark.parametrize("form", HELLOS)
def test_a_truncated_or_extended_hello_is_refused(form: str) -> None:
    guard, packet = hello_case(form)
    show_nothing_changes(guard, (packet[:size] for size in range(len(packet))))
    show_nothing_changes(guard, (packet + bytes(more) for more in range(1, HELLO_BYTES_MAX)))


def test_oversized_packets_of_every_kind_are_refused_before_they_are_opened() -> None:
    a, b = make_pair()
    largest, segment = a.seal(bytes(PACKET_BYTES_MAX), PACKET_BYTES_MAX)
    assert len(b.receive(0, largest, segment)) == 1
    too_large, _ = a.seal(bytes(PACKET_BYTES_MAX + 1), PACKET_BYTES_MAX + 1)
    stranger, _ = make_guard("c").seal(bytes(PACKET_BYTES_MAX + 1), PACKET_BYTES_MAX + 1)
    (hello,) = a.take_packets(10**9)
    show_nothing_changes(b, [too_large, stranger, hello.packet + bytes(70_000)])
    assert b.counters["oversized"] == 3


def test_a_header_fits_no_other_packet() -> None:
    a, b = make_pair()
    first, second = (a.seal(text, 100)[0] for text in (b"the first text", b"the other text"))
    show_nothing_changes(
        b, [first[:HEADER_BYTES] + second[HEADER_BYTES:], second[:HEADER_BYTES] + first[HEADER_BYTES:]]
    )


def test_a_packet_for_one_member_is_opened_by_no_other() -> None:
    """Two members that both took a token for theirs would give its sequence numbers away twice."""
    a, b, c = make_guard("a"), make_guard("b"), make_guard("c")
    exchange(a, b, c)
    sealed, segment = a.seal(plain("TOKEN"), 1000, NodeId("b"))
    show_nothing_changes(c, [sealed])
    show_nothing_changes(c, [sealed[:3] + b"\1" + sealed[4:]])
    show_nothing_changes(b, [sealed[:3] + b"\1" + sealed[4:]])
    assert b.receive(0, sealed, segment)[0].data == plain("TOKEN")
    train, segment = a.seal(plain("TOKEN") * 3, len(plain("TOKEN")), NodeId("c"))
    assert b.receive(0, train, segment) == []
    assert c.receive(0, train, segment)[0].data == plain("TOKEN") * 3


def test_nothing_can_be_read_from_a_sealed_packet() -> None:
    a, b = make_guard("a-telling-name"), make_guard("b")
    hellos = [out.packet for guard in (a, b) for out in guard.take_packets(0)]
    secret = b"a message that nobody else reads"
    sealed, _ = a.seal(secret * 3, 2000)
    for packet in (sealed, *hellos):
        assert secret not in packet
        assert b"telling" not in packet
        assert make_key().secret not in packet
    again, _ = a.seal(secret * 3, 2000)
    assert sealed[HEADER_BYTES:] != again[HEADER_BYTES:]


@pytest.mark.parametrize("last", [1, 17, 399, 400])
@pytest.mark.parametrize("packets", [1, 2, 3, 40, 128, 129, 200])
def test_a_train_is_opened_as_it_was(packets: int, last: int) -> None:
    a, b = make_pair()
    train = Random(packets).randbytes(400 * (packets - 1) + last)
    sealed, segment = a.seal(train, 400)
    assert segment == (400 if packets > 1 else last) + OVERHEAD_BYTES
    assert len(sealed) == len(train) + packets * OVERHEAD_BYTES
    opened = b.receive(0, sealed, segment)
    assert [(train, min(400, len(train)), node_key(NodeId("a")))] == opened
    assert b.counters["opened"] == packets


@pytest.mark.parametrize("bad", [0, 1, 5, 9])
@pytest.mark.parametrize("flaw", ["flipped", "replayed", "plaintext", "noise", "foreign"])
def test_a_bad_packet_in_a_train_is_dropped_and_the_others_survive(bad: int, flaw: str) -> None:
    a, b = make_pair()
    pieces = [bytes((number,)) * (100 if number < 9 else 60) for number in range(10)]
    sealed, segment = a.seal(b"".join(pieces), 100)
    packets = [sealed[at : at + segment] for at in range(0, len(sealed), segment)]
    old = a.seal(b"x" * len(pieces[bad]), 100)[0]
    assert len(b.receive(0, old, len(old))) == 1
    size = len(packets[bad])
    packets[bad] = {
        "flipped": packets[bad][:-1] + bytes((packets[bad][-1] ^ 1,)),
        "replayed": old,
        "plaintext": b"OC\1\1" + bytes(size - 4),
        "noise": Random(bad).randbytes(size),
        "foreign": make_guard("a", make_key("other")).seal(bytes(size - OVERHEAD_BYTES), 100)[0],
    }[flaw]
    opened = b.receive(0, b"".join(packets), segment)
    del pieces[bad]
    assert [(train.data, train.segment) for train in opened] == [(b"".join(pieces), 100)]
    assert refused(b) == 1


def test_trains_of_two_transmitters_in_one_do_not_mix() -> None:
    a, b, c = make_guard("a"), make_guard("b"), make_guard("c")
    exchange(a, b, c)
    parts = [guard.seal(text * 100, 100)[0] for guard, text in ((a, b"a"), (b, b"b"), (a, b"A"), (a, b"x"))]
    opened = c.receive(0, b"".join(parts), 100 + OVERHEAD_BYTES)
    assert [(train.data[:1] + train.data[-1:], train.transmitter) for train in opened] == [
        (b"aa", node_key(NodeId("a"))),
        (b"bb", node_key(NodeId("b"))),
        (b"Ax", node_key(NodeId("a"))),
    ]


def test_own_packets_that_come_back_are_dropped() -> None:
    a, _ = make_pair()
    sealed, segment = a.seal(bytes(1000), 100)
    (hello,) = a.take_packets(10**9)
    before = remembered(a)
    assert a.receive(0, sealed, segment) == []
    assert a.receive(0, hello.packet, len(hello.packet)) == []
    assert a.counters["own"] == 11
    assert remembered(a) == before


def test_an_empty_packet_is_neither_sealed_nor_opened() -> None:
    a, b = make_pair()
    for data, segment in ((b"", 0), (b"", 10), (b"x", 0)):
        with pytest.raises(ValueError, match="empty"):
            a.seal(data, segment)
    assert b.receive(0, b"", 0) == []
    assert b.receive(0, b"", 10) == []
    sealed, _ = a.seal(b"x", 1)
    show_nothing_changes(b, [sealed[:OVERHEAD_BYTES]])


def test_plaintext_is_dropped_where_a_key_is_used_and_sealed_packets_where_none_is() -> None:
    a, b = make_pair()
    none = PlainGuard("orders", NodeId("c"))
    assert none.overhead_bytes == 0
    assert none.seal(plain("DATA") * 2, 400) == (plain("DATA") * 2, 400)
    show_nothing_changes(b, [plain(kind) for kind in KINDS])
    assert b.counters["plaintext"] == len(KINDS)
    for kind in KINDS:
        assert none.receive(0, *none.seal(plain(kind), 65_000)) == [(plain(kind), 65_000, 0)]
        assert none.receive(0, *a.seal(plain(kind), 65_000)) == []
    (hello,) = a.take_packets(10**9)
    assert none.receive(0, hello.packet, len(hello.packet)) == []
    assert none.counters["sealed"] == len(KINDS) + 1
    assert none.take_packets(0) == []
    assert none.deadline is None
    line = none.report(0)
    assert line is not None
    assert "sealed with a key" in line
    assert none.report(1) is None


@pytest.mark.parametrize(
    "other",
    [
        make_guard("c", make_key("another")),
        make_guard("c", GroupKey(make_key().secret, Cipher.CHACHA20_POLY1305)),
        make_guard("c", group="payments"),
    ],
    ids=["another key", "another cipher", "another group"],
)
def test_keys_groups_and_ciphers_do_not_mix(other: Guard) -> None:
    a, b = make_pair()
    exchange(a, b, other)
    assert other.proven() == frozenset()
    assert b.proven() == {"a"}
    before = b.counters["unknown_key"]
    assert b.receive(0, *other.seal(bytes(100), 100)) == []
    assert b.counters["unknown_key"] == before + 1
    assert b.counters["forged"] == 0
    line = b.report(0)
    assert line is not None
    assert "unknown_key" in line


def test_the_other_cipher_seals_as_well() -> None:
    a, b = make_pair(GroupKey(bytes(32), Cipher.CHACHA20_POLY1305))
    sealed, segment = a.seal(bytes(1000), 100)
    assert b.receive(0, sealed, segment)[0].data == bytes(1000)
    show_nothing_changes(b, flips(a.seal(b"token", 10)[0]))
