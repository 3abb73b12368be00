"""The engines that can be simulated, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ordercast.engine.contract import Engine, NodeId, Stored
from ordercast.sim.coverage import COREL, TOTEM, CellTable
from ordercast.sim.schedule import Schedule, check_replication
from ordercast.sim.world import MakeEngine, MakeLayer

RESERVED = ("sequencer", "mtp")
"""Names of engines to come: refused, not stubbed."""


class UnknownEngine(ValueError):
    """The name of no engine, or of one to come."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """How to make an engine of a kind. `factory` takes the configuration of a schedule."""

    name: str
    factory: Callable[[Mapping[str, int]], MakeEngine]
    kinds: Mapping[str, int] = field(default_factory=dict)
    """The kinds of packets that scripts may name: the fourth byte of a packet."""
    layer: Callable[[Mapping[str, int], int], MakeLayer] | None = None
    """A durable layer on top; it takes the configuration and the number of nodes of a schedule."""
    tables: tuple[CellTable, ...] = ()
    """The tables of which runs are to reach all cells."""


def _totem(config: Mapping[str, int]) -> MakeEngine:
    # Looked up here, each time, so that what patches the engine (mutation testing) is what is simulated.
    from ordercast.engine import totem

    constants = totem.TotemConfig(**{name: value for name, value in config.items() if name not in LAYER_CONFIG})

    def make(name: NodeId, stored: dict[str, bytes], nonce: int) -> Engine:
        return totem.Totem(name, constants, stored=stored, nonce=nonce)

    return make


def ring_record(number: int) -> dict[str, bytes]:
    """What Totem finds on its disk after a ring of this number."""
    from ordercast.engine.totem.state import RING_NUMBER_KEYS
    from ordercast.wire.totem import encode_ring_record

    return {RING_NUMBER_KEYS[0]: encode_ring_record(number, 0)}


LAYER_CONFIG = ("founders", "dynamic_voting", "order_without_primary", "lag_max", "ack_delay_us", "lines_delay_us",
                "chunk_bytes", "transport_bytes", "retransmit_bytes", "catchup_outstanding")  # fmt: skip
"""What of a schedule's configuration is corel's."""


def _corel(config: Mapping[str, int], nodes: int) -> MakeLayer:
    from ordercast import corel

    values: dict[str, Any] = {"founders": nodes, **{key: config[key] for key in LAYER_CONFIG if key in config}}
    for name in ("dynamic_voting", "order_without_primary"):
        values[name] = bool(values.get(name, 0))
    constants = corel.CorelConfig(traced=True, **values)

    def make(engine: Engine, stored: Stored, nonce: int) -> Engine:
        return corel.Corel(engine, constants, stored, nonce=nonce)

    return make


def redundant(make: MakeEngine, schedule: Schedule) -> MakeEngine:
    """The same engines over the networks of a schedule."""
    from ordercast import redundancy

    copies = check_replication(schedule.networks, schedule.replication)
    packet_bytes = dict(schedule.config).get("packet_bytes", 1400)
    config = redundancy.NetworkConfig(networks=schedule.networks, copies=copies, packet_bytes=packet_bytes)

    def make_layered(name: NodeId, stored: dict[str, bytes], nonce: int) -> Engine:
        engine = make(name, stored, nonce)
        return redundancy.Redundant(cast(redundancy.RedundantEngine, engine), config, incarnation=nonce)

    return make_layered


_TOTEM_KINDS = {"data": 1, "token": 2, "join": 3, "commit": 4, "leave": 5, "beacon": 6, "wake": 7, "probe": 8}

ENGINES: dict[str, EngineSpec] = {
    "totem": EngineSpec("totem", _totem, _TOTEM_KINDS, tables=(TOTEM,)),
    "corel": EngineSpec("corel", _totem, _TOTEM_KINDS, _corel, (TOTEM, COREL)),
}


def find_engine(name: str) -> EngineSpec:
    if name in ENGINES:
        return ENGINES[name]
    if name in RESERVED:
        raise UnknownEngine(f"engine {name} is not implemented yet; there is {', '.join(ENGINES)}")
    raise UnknownEngine(f"there is no engine {name}; there is {', '.join(ENGINES)}")
