"""Which message is handled in which phase. One cell, one action; docs/corel.md shows the same table."""

from __future__ import annotations

from enum import Enum

from ordercast.corel.messages import MessageKind as M
from ordercast.corel.state import Phase as P


class Action(Enum):
    HANDLE = "handle"
    IGNORE = "ignore"
    """It is for others, or comes too late to matter."""
    IMPOSSIBLE = "impossible"
    """No member of this round can have sent it before what I have delivered."""


_H, _I, _X = Action.HANDLE, Action.IGNORE, Action.IMPOSSIBLE
PHASES = (P.EXCHANGE, P.RETRANSMISSION, P.ATTEMPT, P.COMMIT, P.PRIMARY, P.COMPONENT, P.PASSIVE)
_ROWS: dict[M, tuple[Action, ...]] = {
    # EXCHANGE, RETRANSMISSION, ATTEMPT, COMMIT, PRIMARY, COMPONENT, PASSIVE
    M.CHUNK: (_H, _H, _H, _H, _H, _H, _H),  # buffered by the handler, dropped by a passive member
    M.ACK: (_X, _H, _X, _X, _H, _H, _I),  # members that are done before me are in regular operation without a primary
    M.STATE: (_H, _X, _X, _X, _X, _X, _X),  # each member sends one a round, and the last one ends the phase
    M.PRIORITY: (_X, _H, _I, _I, _I, _I, _I),
    M.RED: (_X, _H, _I, _I, _I, _I, _I),
    M.ATTEMPT: (_X, _H, _H, _X, _X, _X, _I),
    M.COMMIT: (_X, _X, _X, _H, _X, _X, _I),
    M.REGROUP: (_X, _H, _H, _H, _H, _H, _H),
    M.CATCHUP: (_X, _I, _I, _I, _I, _I, _H),
    M.PACE: (_X, _H, _H, _H, _H, _H, _I),
}
TABLE: dict[tuple[P, M], Action] = {
    (phase, kind): action for kind, row in _ROWS.items() for phase, action in zip(PHASES, row, strict=True)
}
