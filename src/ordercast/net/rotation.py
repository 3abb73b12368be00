"""A change of the group's secret at one member, step by step."""

from __future__ import annotations

from ordercast.errors import AuthError, GroupError
from ordercast.wire.guard import AnyGuard
from ordercast.wire.ids import NodeId
from ordercast.wire.keys import GroupKey, GroupKeyError

ROTATION_SETTLE_US = 1_000_000
"""From when this process has accepted all others under a new key until it seals with it: the handshake runs both ways,
and this is four of its rounds, so that they have accepted it too. A token that they refuse would be taken for lost."""
ROTATION_GRACE_US = 2_000_000
"""How long an old key is accepted after this member has begun to use the new one: the others follow within moments."""


class Rotation:
    """A change of keys on its way: accept the new one, seal with it once all members accept it, retire the old ones."""

    def __init__(self, key: GroupKey) -> None:
        self.key = key
        self.done = False
        self.error: GroupError | None = None
        self.begun = False
        self.use_at: int | None = None
        self.retire_at: int | None = None

    def advance(self, now: int, guard: AnyGuard, others: frozenset[NodeId]) -> None:
        try:
            self._advance(now, guard, others)
        except GroupKeyError as error:
            self.error, self.done = AuthError(str(error)), True

    def _advance(self, now: int, guard: AnyGuard, others: frozenset[NodeId]) -> None:
        if not self.begun:
            guard.add_key(self.key)
            self.begun = True
        elif self.retire_at is None:
            if not others <= guard.proven(self.key):
                self.use_at = None
            elif self.use_at is None:
                self.use_at = now + ROTATION_SETTLE_US
            elif now >= self.use_at:
                guard.use_key(self.key)
                self.retire_at = now + ROTATION_GRACE_US
        elif now >= self.retire_at:
            for key in guard.keys[1:]:
                guard.retire_key(key)
            self.done = True

    def result(self) -> None:
        if self.error is not None:
            raise self.error
