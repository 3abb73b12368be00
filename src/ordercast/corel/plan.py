"""Steps 3 and 4 of the recovery procedure: what follows from the State messages of all members of a configuration.

Every member computes the same from the same messages. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ordercast.corel.codec import Weights
from ordercast.corel.messages import StateMessage
from ordercast.corel.quorum import may_found, quorum
from ordercast.corel.record import Primary
from ordercast.wire.ids import NodeId


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of the configuration that a plan depends on; equal at all members."""

    founders: int
    dynamic_voting: bool
    lag_max: int


@dataclass(slots=True)
class Plan:
    max_committed: Primary
    founding: str
    active: tuple[NodeId, ...]
    """Those who take part; by name."""
    stranded: tuple[NodeId, ...]
    """They have heard of a later primary component than anybody here has been in."""
    foreign: tuple[NodeId, ...]
    pupils: tuple[NodeId, ...]
    """They are to be brought up by the representative."""
    representatives: tuple[NodeId, ...]
    representative: NodeId
    green: int
    yellow: int
    group: dict[str, int]
    """The declared group, as the one who is furthest says of those who have always known it."""
    priority_from: int
    """component_ordered ends here, for those who have to be told: what the others have green nobody has to send."""
    common: dict[str, int]
    """Of each stream the last message that all active members have."""
    highest: dict[str, int]
    """Of each stream the last message that any active member has."""
    responsible: dict[str, NodeId]
    """Who retransmits the red messages of a stream."""
    quorum: bool
    voters: tuple[NodeId, ...]
    basis: tuple[Primary, ...]
    """What they have to outnumber: the last primary component, and attempts after it."""
    founds: bool
    number: int
    """New_Primary."""

    @property
    def all_representatives(self) -> bool:
        return set(self.active) <= set(self.representatives)


def make_plan(states: Mapping[NodeId, StateMessage], rules: Rules) -> Plan | None:
    """None if nobody here may speak for the group."""
    names = sorted(states)
    founding = _founding(states)
    foreign = tuple(name for name in names if states[name].founding not in ("", founding))
    ours = [name for name in names if name not in foreign]
    committed = max((states[name].last_committed_primary for name in ours), key=lambda primary: primary.number)
    stranded = tuple(name for name in ours if states[name].heard > committed.number)
    able = [name for name in ours if name not in stranded]
    representatives = tuple(name for name in able if states[name].last_committed_primary.number == committed.number)
    if not representatives:
        return None
    representative = min(representatives, key=lambda name: (states[name].earliest, name))
    green = max(states[name].green for name in able)
    yellow = max(green, min(states[name].yellow for name in representatives))
    knowing = [name for name in able if states[name].last_committed_primary.number] or able
    group = states[max(knowing, key=lambda name: states[name].green)].group
    earliest = states[representative].earliest
    eligible = {*group, *dict(committed.group)}

    def takes_part(name: NodeId) -> bool:
        behind = green - states[name].green
        return name in representatives or (
            name in eligible and behind <= rules.lag_max and states[name].green >= earliest
        )

    active = tuple(name for name in able if not founding or takes_part(name))
    pupils = tuple(name for name in able if name not in active)
    streams = {stream for name in active for stream in states[name].vector}
    vectors = [states[name].vector for name in active]
    highest = {stream: max(vector.get(stream, 0) for vector in vectors) for stream in streams}
    attempts = [attempt for name in active for attempt in states[name].attempts if attempt.number > committed.number]
    voters = tuple(name for name in active if states[name].last_attempted_primary)
    founds = not founding and may_found(active, rules.founders, attempts)
    return Plan(
        committed,
        founding,
        active,
        stranded,
        foreign,
        pupils,
        representatives,
        representative,
        green,
        yellow,
        group,
        min((states[name].green for name in active if name not in representatives), default=green),
        {stream: min(vector.get(stream, 0) for vector in vectors) for stream in streams},
        highest,
        {
            stream: next(name for name in active if states[name].vector.get(stream, 0) == highest[stream])
            for stream in streams
        },
        founds or (bool(founding) and quorum([committed, *attempts], voters, dynamic=rules.dynamic_voting)),
        voters,
        (committed, *attempts),
        founds,
        1 + max(_highest_number(state) for state in states.values()),
    )


def _founding(states: Mapping[NodeId, StateMessage]) -> str:
    """The group that this component belongs to: that of the member that knows of the latest primary component."""
    latest = max((max(state.last_committed_primary.number, state.heard), state.founding) for state in states.values())
    return latest[1]


def _highest_number(state: StateMessage) -> int:
    return max(state.last_attempted_primary, state.last_committed_primary.number, state.heard)


def weights(group: Mapping[str, int]) -> Weights:
    return tuple(sorted(group.items()))
