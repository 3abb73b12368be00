"""Limits of the protocol's constants, and identifiers."""

from __future__ import annotations

import dataclasses

import pytest

from ordercast.engine.totem import Totem, TotemConfig
from ordercast.wire.ids import NAME_BYTES_MAX, NO_NODE, NodeId, RingId, Service, node_key, ring_digest
from ordercast.wire.layout import PACKET_BYTES_MAX, WireError
from ordercast.wire.pack import PACKET_BYTES_MIN


def test_defaults_are_allowed() -> None:
    assert TotemConfig().max_messages <= TotemConfig().window_size


@pytest.mark.parametrize(
    "changes",
    [
        {"max_messages": 0},
        {"max_messages": -1},
        {"max_messages": 801},
        {"window_size": 199},
        {"window_size": 0},
        {"token_hold_us": 400_000},
        {"token_loss_timeout_us": 80_000},
        {"token_retransmission_timeout_us": 340_000},
    ],
)
def test_constants_that_do_not_fit_together_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must"):
        TotemConfig(**changes)


@pytest.mark.parametrize("size", [0, PACKET_BYTES_MIN - 1, PACKET_BYTES_MAX + 1])
def test_packets_of_an_impossible_size_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="packet"):
        Totem("a", TotemConfig(packet_bytes=size))


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", ["token_retransmission_timeout_us", "join_timeout_us", "beacon_interval_us"])
def test_times_that_would_make_a_timer_spin_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        TotemConfig(**{name: value})


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TotemConfig().window_size = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", ["", "a b", "x" * (NAME_BYTES_MAX + 1), "a\n", "\0", "\ud800"])
def test_engines_refuse_names_that_cannot_stand_in_packets(name: str) -> None:
    with pytest.raises(WireError):
        Totem(name)


def test_node_keys_are_fixed_64_bit_digests() -> None:
    assert node_key(NodeId("a")) == node_key(NodeId("a")) != node_key(NodeId("b"))
    assert node_key(NodeId("alice")) == 0x89DA54CE0CECEA4D
    assert 0 < node_key(NodeId("ü")) < 2**64
    assert NO_NODE == 0


def test_ring_digests_depend_on_number_representative_and_nonce() -> None:
    rings = [RingId(4, NodeId("a")), RingId(8, NodeId("a")), RingId(4, NodeId("b")), RingId(4, NodeId("a"), 1)]
    assert len({ring_digest(ring) for ring in rings}) == 4
    assert len({ring.text for ring in rings}) == 4


def test_ring_text_names_number_representative_and_nonce() -> None:
    assert RingId(12, NodeId("n1")).text == "12:n1"
    assert RingId(12, NodeId("n1"), 0xAB).text == "12:n1.ab"


def test_services() -> None:
    assert (Service.AGREED, Service.SAFE) == (0, 1)
