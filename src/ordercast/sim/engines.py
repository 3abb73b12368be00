"""The engines that can be simulated, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ordercast.engine.contract import Engine, NodeId
from ordercast.sim.world import MakeEngine

RESERVED = ("sequencer", "mtp", "corel")
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


def _totem(config: Mapping[str, int]) -> MakeEngine:
    # Looked up here, each time, so that what patches the engine (mutation testing) is what is simulated.
    from ordercast.engine import totem

    constants = totem.TotemConfig(**config)

    def make(name: NodeId, stored: dict[str, bytes], nonce: int) -> Engine:
        return totem.Totem(name, constants, stored=stored, nonce=nonce)

    return make


_TOTEM_KINDS = {"data": 1, "token": 2, "join": 3, "commit": 4, "leave": 5, "beacon": 6, "wake": 7}

ENGINES: dict[str, EngineSpec] = {"totem": EngineSpec("totem", _totem, _TOTEM_KINDS)}


def find_engine(name: str) -> EngineSpec:
    if name in ENGINES:
        return ENGINES[name]
    if name in RESERVED:
        raise UnknownEngine(f"engine {name} is not implemented yet; there is {', '.join(ENGINES)}")
    raise UnknownEngine(f"there is no engine {name}; there is {', '.join(ENGINES)}")
