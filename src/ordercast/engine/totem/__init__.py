"""The Totem single ring."""

from ordercast.engine.totem.engine import Totem
from ordercast.engine.totem.state import Event, Phase, Reason, TotemConfig

__all__ = ["Event", "Phase", "Reason", "Totem", "TotemConfig"]
