"""Bytes that no sender made: a `WireError` or a packet that could be, never another exception, never much memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire_samples import ALICE, BOB, DIGEST, decode, make, packets, refused, refused_record

from ordercast.wire.ids import NAME_BYTES_MAX, NodeId, NodeKey, RingId
from ordercast.wire.layout import (
    MAGIC,
    MEMBERS_MAX,
    PACKET_BYTES_MAX,
    SEQ_MAX,
    VERSION,
    Malformed,
    Truncated,
    UnknownVersion,
    WireError,
)
from ordercast.wire.totem import (
    RTR_RANGES_MAX,
    Beacon,
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    Token,
    Wake,
    check_name,
    decode_commit,
    decode_join,
    decode_ring_record,
    decode_token,
    encode_ring_record,
)
from ordercast.wire.train import parse_train

MEMORY_MAX = 256 * 1024
"""Far more than decoding one of these packets takes; far less than a count that is believed would."""


def _bounded(action: Callable[[], object]) -> None:
    tracemalloc.start()
    try:
        action()
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", packets())
def test_every_truncation_is_refused(name: str) -> None:
    whole = packets()[name]
    _bounded(lambda: [refused(whole[:size]) for size in range(len(whole))])
    for size in range(len(whole)):
        assert refused(whole[:size]), f"{size} of {len(whole)} bytes pass"
    assert not refused(whole)


@pytest.mark.parametrize("name", packets())
def test_bytes_behind_a_packet_are_refused(name: str) -> None:
    whole = packets()[name]
    padding = 17 if name.startswith("data") else 1
    assert refused(whole + bytes(padding))


@pytest.mark.parametrize("name", packets())
def test_every_flipped_bit_gives_an_error_or_a_packet(name: str) -> None:
    whole = bytearray(packets()[name])

    def flip() -> None:
        for at in range(len(whole)):
            for bit in range(8):
                whole[at] ^= 1 << bit
                refused(bytes(whole))
                whole[at] ^= 1 << bit

    _bounded(flip)


@pytest.mark.parametrize("name", packets())
@pytest.mark.parametrize("value", [0xFFFF, 0x7FFF, 0xFF00, 0])
def test_every_two_bytes_as_an_enormous_count(name: str, value: int) -> None:
    """Whichever of the fields is a count or a length: none is believed before the bytes are there."""
    whole = packets()[name]

    def overwrite() -> None:
        for at in range(4, len(whole) - 1):
            refused(whole[:at] + value.to_bytes(2, "little") + whole[at + 2 :])

    _bounded(overwrite)


@pytest.mark.parametrize("name", packets())
def test_every_eight_bytes_as_a_number_out_of_range(name: str) -> None:
    whole = packets()[name]
    for at in range(4, len(whole) - 7):
        refused(whole[:at] + b"\xff" * 8 + whole[at + 8 :])


@pytest.mark.parametrize("name", packets())
@pytest.mark.parametrize("head", [b"OC\x00", b"OC\x02", b"OC\xff", b"oC\x01", b"OD\x01", b"\x00\x00\x00"])
def test_another_version_or_magic_is_unknown(name: str, head: bytes) -> None:
    with pytest.raises(UnknownVersion):
        decode(head + packets()[name][3:])


@pytest.mark.parametrize("size", range(4))
def test_less_than_the_first_four_bytes_is_truncated(size: int) -> None:
    with pytest.raises(Truncated):
        decode((MAGIC + bytes([VERSION]))[:size])


@given(st.sampled_from(sorted(packets())), st.binary(max_size=200), st.integers(4, 200))
def test_garbage_behind_a_genuine_head(name: str, garbage: bytes, size: int) -> None:
    refused(packets()[name][:size] + garbage)


@given(
    st.sampled_from(sorted(packets())),
    st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_overwritten_bytes(name: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(packets()[name])
    for at, value in changes:
        data[4 + at % (len(data) - 4)] = value
    refused(bytes(data))


def test_data_without_entries_is_refused() -> None:
    plain = packets()["data plain"]
    assert refused(plain[:54] + bytes(2) + plain[56:])
    assert refused(plain[:54] + bytes(2))


@pytest.mark.parametrize("seq", [0, SEQ_MAX + 1, 2**64 - 1])
def test_data_with_a_sequence_number_out_of_range_is_refused(seq: int) -> None:
    plain = packets()["data plain"]
    assert refused(plain[:28] + seq.to_bytes(8, "little") + plain[36:])


def test_data_with_the_last_sequence_number_is_taken() -> None:
    """Bug 20: there is no wrap-around, only an end that nobody reaches."""
    plain = packets()["data plain"]
    data = plain[:28] + SEQ_MAX.to_bytes(8, "little") + plain[36:]
    train = parse_train(data, len(data))
    assert train is not None
    assert train.last_seq == SEQ_MAX


def test_data_with_an_unknown_flag_or_no_sender_is_refused() -> None:
    plain = packets()["data plain"]
    assert refused(plain[:52] + (64).to_bytes(2, "little") + plain[54:])
    assert refused(plain[:20] + bytes(8) + plain[28:])


@pytest.mark.parametrize(
    "rtr",
    [
        [(0, 1)],
        [(5, 0)],
        [(5, 2), (6, 1)],
        [(9, 1), (5, 1)],
        [(99, 2)],
        [(SEQ_MAX, 1)],
        [(1 + 2 * at, 1) for at in range(RTR_RANGES_MAX + 1)],
    ],
)
def test_token_with_impossible_requests_is_refused(rtr: list[tuple[int, int]]) -> None:
    with pytest.raises(Malformed):
        decode_token(Token(8, DIGEST, 1, 99 + 2 * len(rtr) * (len(rtr) > 9), 4, rtr=rtr).encode())


def test_token_whose_aru_is_above_its_seq_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_token(Token(8, DIGEST, 1, 4, 5).encode())


@pytest.mark.parametrize("field", [4, 20, 28])
def test_token_with_a_number_out_of_range_is_refused(field: int) -> None:
    data = packets()["token"]
    with pytest.raises(Malformed):
        decode_token(data[:field] + (SEQ_MAX + 1).to_bytes(8, "little") + data[field + 8 :])


def test_numbers_out_of_range_are_refused_in_every_packet_that_names_a_ring() -> None:
    """`layout`: a packet that carries a number above SEQ_MAX is refused."""
    number = SEQ_MAX + 1
    packets = [
        Leave(number, DIGEST, ALICE).encode(),
        Wake(number, DIGEST, NodeKey(7)).encode(),
        Beacon(number, DIGEST, ALICE, frozenset((NodeKey(7),)), frozenset()).encode(),
    ]
    assert [refused(packet) for packet in packets] == [True] * 3


def _join(sender: bytes, names: list[bytes], bitmap: bytes) -> bytes:
    parts = [b"OC\x01\x03", struct.pack("<QH", 4, 0)]
    parts += [bytes((len(name),)) + name for name in (sender,)]
    parts.append(struct.pack("<H", len(names)))
    parts += [bytes((len(name),)) + name for name in names]
    return b"".join(parts) + bitmap


def test_join_made_by_hand_is_taken() -> None:
    assert decode_join(_join(b"a", [b"a", b"b"], b"\x02")).fail_set == {"b"}


@pytest.mark.parametrize(
    ("sender", "names", "bitmap"),
    [
        (b"c", [b"a", b"b"], b"\0"),
        (b"a", [b"b", b"a"], b"\0"),
        (b"a", [b"a", b"a"], b"\0"),
        (b"a", [b"a", b"b"], b"\x04"),
        (b"a", [b"a", b"b"], b"\x01"),
        (b"", [b""], b"\0"),
        (b"a", [b"a", b"\xff"], b"\0"),
        (b"a", [b"a", b"b c"], b"\0"),
        (b"a", [b"a", b"b\n"], b"\0"),
        (b"a", [b"a", b"\xed\xa0\x80"], b"\0"),
        (b"a", [b"a", b"x" * (NAME_BYTES_MAX + 1)], b"\0"),
        (b"a", [], b""),
        (b"a000", [b"a%03d" % at for at in range(MEMBERS_MAX + 1)], bytes(MEMBERS_MAX // 8 + 1)),
    ],
)
def test_join_with_impossible_sets_is_refused(sender: bytes, names: list[bytes], bitmap: bytes) -> None:
    with pytest.raises(Malformed):
        decode_join(_join(sender, names, bitmap))


def test_commit_with_impossible_fields_is_refused() -> None:
    for change in ("rotation", "index", "count", "number", "order", "twice", "empty"):
        token = decode_commit(packets()["commit, second rotation"])
        if change == "rotation":
            token.rotation = 3
        elif change == "index":
            token.memb_index = 2
        elif change == "count":
            token.memb_list = []
        elif change == "number":
            token.ring_number = SEQ_MAX + 1
        elif change == "order":
            token.memb_list.reverse()
        elif change == "twice":
            token.memb_list[1].name = token.memb_list[0].name
        else:
            token.memb_list[0].filled = False
        with pytest.raises(Malformed):
            decode_commit(token.encode())


def test_commit_that_has_delivered_more_than_received_is_refused() -> None:
    token = decode_commit(packets()["commit, second rotation"])
    token.memb_list[1].high_delivered = token.memb_list[1].my_aru + 1
    with pytest.raises(Malformed):
        decode_commit(token.encode())


@pytest.mark.parametrize(
    "name", ["", "x" * (NAME_BYTES_MAX + 1), "ü" * (NAME_BYTES_MAX // 2 + 1), "a b", "a\0", "\u2028"]
)
def test_names_that_cannot_stand_in_a_packet(name: str) -> None:
    with pytest.raises(WireError):
        check_name(name)


def test_name_of_a_lone_surrogate_is_refused_like_any_other() -> None:
    with pytest.raises(WireError):
        check_name("\ud800")


def test_bug_16_a_torn_ring_record_is_told_from_a_whole_one() -> None:
    record = make()["ring record"]
    assert all(refused_record(record[:size]) for size in range(len(record)))
    for at in range(len(record)):
        for bit in range(8):
            torn = bytearray(record)
            torn[at] ^= 1 << bit
            assert refused_record(bytes(torn)), f"bit {bit} of byte {at}"
    assert refused_record(record + b"\n")
    assert refused_record(record * 2)
    assert refused_record(bytes(len(record)))


@example(b"ordercast-ring 1 " + b"9" * 5000 + b" 0 0\n")
@example(b"ordercast-ring 1 8 " + b"9" * 5000 + b" 0\n")
@example("ordercast-ring 1 ² 0 0\n".encode())
@given(st.binary(max_size=80))
def test_bug_16_a_record_of_anything_else_is_refused(record: bytes) -> None:
    assert refused_record(record)


def test_ring_record_out_of_range_is_refused() -> None:
    assert refused_record(encode_ring_record(SEQ_MAX + 1, 0))
    assert refused_record(encode_ring_record(1, 2**32))
    assert decode_ring_record(encode_ring_record(SEQ_MAX, 2**32 - 1)) == (SEQ_MAX, 2**32 - 1)


def test_the_largest_membership_with_the_longest_names_fits_a_packet() -> None:
    names = [NodeId(f"{at:03}".ljust(NAME_BYTES_MAX, "x")) for at in range(MEMBERS_MAX)]
    keys = frozenset(NodeKey(at + 1) for at in range(MEMBERS_MAX))
    entries = [CommitEntry(name, True, RingId(4, name), window=1) for name in names]
    largest = [
        CommitToken(8, 1, 2, 0, entries).encode(),
        Join(names[0], frozenset(names), frozenset(), 4).encode(),
        Beacon(4, DIGEST, names[0], keys, keys).encode(),
        Token(8, DIGEST, 1, 1000, 0, rtr=[(2 * at + 1, 1) for at in range(RTR_RANGES_MAX)]).encode(),
    ]
    for packet in largest:
        assert len(packet) <= PACKET_BYTES_MAX
        assert not refused(packet)


def test_bob_is_a_name() -> None:
    assert check_name(BOB) == "bob"
