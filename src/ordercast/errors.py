"""What can go wrong for a user of a group."""

from __future__ import annotations


class GroupError(Exception):
    """The group cannot do what was asked; the message is one clear line."""


class NotMember(GroupError):
    """This process has left the group, or lost it."""


class WouldBlock(GroupError):
    """The queue of messages to be sent is full; `send` would have waited."""


class MessageTooLarge(GroupError):
    """The message is longer than the group accepts."""


class DeliveryUncertain(GroupError):
    """Whether all members that should have the message do have it cannot be told.

    The membership changed before a safe message was known to be everywhere, or this process left or lost the group
    before the message was delivered.
    """


class AuthError(GroupError):
    """The group's secret is missing, unreadable or not the one that the others use."""


class NotPrimary(GroupError):
    """The operation needs the primary component, and this process is not in it."""


class LogCorrupt(GroupError):
    """The durable log is damaged in a place that cannot be repaired by cutting its end off."""


class Evicted(GroupError):
    """This process left the group because its application read too slowly for too long."""
