"""§4, the first extension: order without a primary component, once messages are known to have reached everyone.

What members say in State messages is passed on, so that a member comes to know of all others without ever being
connected to all of them at once. If all of the declared group, and all that may vote with it, have been in the same
last primary component, with the same yellow zone, then whatever becomes primary next orders the rest by TS. A message
is certain of its place when everyone is known to have it, and nobody can bring another with a lower TS: everyone has
said which messages it has, in a configuration later than the message's.
"""

from __future__ import annotations

from ordercast.corel import regular
from ordercast.corel.messages import Known, StateMessage
from ordercast.corel.state import State
from ordercast.wire.ids import NodeId


def learn(s: State, sender: NodeId, state: StateMessage) -> None:
    """What the sender says of itself and of others; the later round counts."""
    green, yellow = state.green, state.yellow
    mine = Known(s.round, state.last_committed_primary.number, green, yellow, state.vector)
    for name, known in [*state.known.items(), (str(sender), mine)]:
        if name not in s.known or s.known[name].round < known.round:
            s.known[name] = known


def order_what_all_have(s: State) -> None:
    if not s.config.order_without_primary:
        return
    position = certain_position(s)
    if position > s.mq.green:
        s.report("order", "everyone has them", position=position)
        regular.mark_green(s, position)
        s.write_lines()


def certain_position(s: State) -> int:
    """Up to where the order of the queue is certain; the green line if no further."""
    green = s.mq.green
    primary = s.record.last_committed_primary
    # A removed member of the last primary component may have to vote for the next one, and brings what it has.
    everyone = {*s.record.group, *dict(primary.members), *dict(primary.group)}
    if not s.record.group or any(name not in s.known for name in everyone):
        return green
    known = [s.known[name] for name in sorted(everyone)]
    committed = s.record.last_committed_primary.number
    yellow = min(max(one.yellow, one.green) for one in known)
    for one in known:
        if one.last_committed_primary != committed or (one.yellow != yellow and one.green != one.yellow):
            return green
        if any(s.mq.last.get(stream, 0) < last for stream, last in one.vector.items()):
            return green
    passed = min(one.round.view for one in known)
    position = green
    for end, item in s.mq.ends():
        if item.change or item.ts.number >= passed:
            break
        if any(one.vector.get(item.stream, 0) < item.last for one in known):
            break
        position = end
    return position
