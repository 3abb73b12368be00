"""Which component may become primary: weighted majorities, and dynamic voting.

Pure functions of what the State messages say, so that all members of a component come to the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ordercast.corel.codec import Weights
from ordercast.corel.record import Primary


def majority(group: Mapping[str, int], voters: Collection[str]) -> bool:
    """More than half of the group's weight."""
    return 2 * sum(weight for name, weight in group.items() if name in voters) > sum(group.values())


def subquorum(members: Weights, voters: Collection[str]) -> bool:
    """A majority of a former component; of two halves the one with its first member: the heaviest, then by name."""
    total = sum(weight for _, weight in members)
    present = sum(weight for name, weight in members if name in voters)
    if 2 * present != total:
        return 2 * present > total
    first = min(members, key=lambda member: (-member[1], member[0]), default=("", 0))
    return first[0] in voters


def may_found(members: Collection[str], founders: int, attempts: Iterable[Primary]) -> bool:
    """Whether members that know of no primary component may establish the first one.

    Deviation K6. It takes all founders: a member with an empty disk may have been in a primary component and lost its
    memory. An attempt that is not known to have failed is repeated with all its members.
    """
    attempted = {name for attempt in attempts for name, _ in attempt.members}
    return len(members) >= founders and attempted <= set(members)


def quorum(basis: Iterable[Primary], voters: Collection[str], *, dynamic: bool) -> bool:
    """Whether the voters outnumber what is left of each component that may have been primary last.

    `basis` are the last one that was committed to, and attempts after it, to which somebody may have committed.
    §3.5.1: a majority of the declared group; §4, dynamic voting: a majority of the component itself.
    """
    if dynamic:
        return all(subquorum(primary.members, voters) for primary in basis)
    return all(majority(dict(primary.group), voters) for primary in basis)
