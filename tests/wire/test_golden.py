"""The bytes of every kind of packet, as they stand in golden.json: a change of the layout shows there.

`ORDERCAST_REWRITE_GOLDEN=1 pytest tests/wire` writes the file anew. A difference in it means that old and new processes
do not understand each other: raise `layout.VERSION` with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from wire_samples import ALICE, BOB, CARL, DIGEST, OLD, RING, STAMP, decode, make, packets

from ordercast.engine.assemble import Assembler
from ordercast.engine.contract import Run
from ordercast.wire.ids import RingId, Service, node_key
from ordercast.wire.totem import (
    CommitToken,
    decode_beacon,
    decode_commit,
    decode_join,
    decode_leave,
    decode_ring_record,
    decode_token,
    decode_wake,
)
from ordercast.wire.train import Flag, Train, check_packet, parse_train

_GOLDEN = Path(__file__).parent / "golden.json"


@pytest.fixture(scope="module")
def golden() -> dict[str, bytes]:
    if os.environ.get("ORDERCAST_REWRITE_GOLDEN"):
        _GOLDEN.write_text(json.dumps({name: data.hex() for name, data in make().items()}, indent=2) + "\n")
    return {name: bytes.fromhex(text) for name, text in json.loads(_GOLDEN.read_text()).items()}


@pytest.mark.parametrize("name", make())
def test_encoders_give_the_golden_bytes(name: str, golden: dict[str, bytes]) -> None:
    assert make()[name] == golden[name]


def test_no_golden_packet_is_without_its_sample(golden: dict[str, bytes]) -> None:
    assert list(golden) == list(make())


def _train(data: bytes) -> Train:
    train = parse_train(data, len(data))
    assert train is not None
    return train


def _bodies(data: bytes) -> list[bytes]:
    train = _train(data)
    batch = Assembler().feed(Run(train, 0, train.count))
    return [] if batch is None else list(batch)


def test_plain_data(golden: dict[str, bytes]) -> None:
    train = _train(golden["data plain"])
    assert (train.first_seq, train.last_seq, train.sender, train.service) == (42, 42, node_key(BOB), Service.AGREED)
    assert train.direct
    assert not train.recovery
    assert _bodies(golden["data plain"]) == [b"one", b"", b"three"]


def test_safe_data(golden: dict[str, bytes]) -> None:
    train = _train(golden["data safe"])
    assert train.service is Service.SAFE
    assert not train.direct
    assert _bodies(golden["data safe"]) == [b"safe and sound"]


def test_data_with_keys_and_headers(golden: dict[str, bytes]) -> None:
    train = _train(golden["data with keys and headers"])
    batch = Assembler().feed(Run(train, 0, 1))
    assert batch is not None
    assert batch.stamp_us == STAMP
    assert list(batch.records()) == [(b"key", None, b"data"), (None, b"head", b""), (b"", b"", b"x")]
    assert list(batch) == [b"data", b"", b"x"]


def test_data_with_keys_alone(golden: dict[str, bytes]) -> None:
    batch = Assembler().feed(Run(_train(golden["data with keys"]), 0, 1))
    assert batch is not None
    assert list(batch.records()) == [(b"key", None, b"data")]


def test_split_data(golden: dict[str, bytes]) -> None:
    first, last = golden["data split, first piece"], golden["data split, last piece"]
    assert check_packet(first, 0, len(first)) == (node_key(BOB), 42, Flag.UNFINISHED)
    assert check_packet(last, 0, len(last)) == (node_key(BOB), 43, Flag.CONTINUES)
    train = parse_train(first + last, len(first))
    assert train is not None
    batch = Assembler().feed(Run(train, 0, 2))
    assert batch is not None
    assert list(batch) == [bytes(range(100))]


def test_recovery_data(golden: dict[str, bytes]) -> None:
    assert _train(golden["data recovery"]).recovery
    assert _bodies(golden["data recovery"]) == [golden["data plain"]]


def test_token(golden: dict[str, bytes]) -> None:
    token = decode_token(golden["token"])
    assert (token.ring_number, token.ring_digest, token.token_seq, token.seq, token.aru) == (8, DIGEST, 5, 99, 99)
    assert (token.aru_id, token.rtr, token.retrans_flg, token.idle) == (0, [], False, False)


def test_token_with_requests(golden: dict[str, bytes]) -> None:
    token = decode_token(golden["token with requests"])
    assert (token.token_seq, token.seq, token.aru, token.aru_id) == (77, 99, 11, node_key(BOB))
    assert (token.fcc, token.backlog, token.retrans_flg, token.idle) == (3, 4, True, True)
    assert token.rtr == [(12, 1), (14, 5), (60, 40)]


def test_join(golden: dict[str, bytes]) -> None:
    join = decode_join(golden["join"])
    assert (join.sender, join.ring_seq, join.attempts) == (BOB, 4, 2)
    assert (join.proc_set, join.fail_set) == ({ALICE, BOB, CARL}, {CARL})


def test_commit_in_its_first_rotation(golden: dict[str, bytes]) -> None:
    token = decode_commit(golden["commit, first rotation"])
    assert (token.ring_id, token.rotation, token.memb_index, token.members) == (RING, 1, 0, {ALICE, BOB})
    mine, empty = token.memb_list
    assert (mine.filled, mine.old_ring, mine.my_aru, mine.high_delivered) == (True, RingId(4, ALICE, 7), 17, 11)
    assert (mine.received_flg, mine.window) == (True, 8192)
    assert not empty.filled


def test_commit_in_its_second_rotation(golden: dict[str, bytes]) -> None:
    token = decode_commit(golden["commit, second rotation"])
    assert isinstance(token, CommitToken)
    assert (token.rotation, token.memb_index) == (2, 1)
    assert token.memb_list[1].old_ring == OLD
    assert (token.memb_list[1].my_aru, token.memb_list[1].received_flg) == (3, False)


def test_leave_beacon_and_wake(golden: dict[str, bytes]) -> None:
    leave, beacon, wake = (golden[name] for name in ("leave", "beacon", "wake"))
    assert (decode_leave(leave).ring_digest, decode_leave(leave).sender) == (DIGEST, CARL)
    assert (decode_beacon(beacon).sender, decode_beacon(beacon).ring_number) == (ALICE, 8)
    assert decode_beacon(beacon).members == {node_key(ALICE), node_key(BOB)}
    assert decode_beacon(beacon).heard == {node_key(CARL)}
    assert (decode_wake(wake).ring_number, decode_wake(wake).sender) == (8, node_key(BOB))


def test_ring_record(golden: dict[str, bytes]) -> None:
    assert decode_ring_record(golden["ring record"]) == (8, 0x1234)


@pytest.mark.parametrize("name", [name for name in packets() if not name.startswith("data")])
def test_control_packets_encode_to_what_they_were_decoded_from(name: str, golden: dict[str, bytes]) -> None:
    assert decode(golden[name]).encode() == golden[name]  # type: ignore[attr-defined]
