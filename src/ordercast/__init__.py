"""ordercast: total order, membership and extended virtual synchrony for groups of Python processes.

async with ordercast.join("orders") as group:
    await group.send(b"hello")
    async for event in group:
        ...
"""

from ordercast import sync
from ordercast.durable import Retention
from ordercast.errors import (
    AuthError,
    DeliveryUncertain,
    Evicted,
    GroupError,
    LogCorrupt,
    MessageTooLarge,
    NotMember,
    NotPrimary,
    WouldBlock,
)
from ordercast.events import Batch, Message, NetworkFault, NetworkRepaired, Snapshot, TransitionalView, View
from ordercast.group import Group, Receipt, Ticket, join

__version__ = "0.1.0"

__all__ = [
    "AuthError",
    "Batch",
    "DeliveryUncertain",
    "Evicted",
    "Group",
    "GroupError",
    "LogCorrupt",
    "Message",
    "MessageTooLarge",
    "NetworkFault",
    "NetworkRepaired",
    "NotMember",
    "NotPrimary",
    "Receipt",
    "Retention",
    "Snapshot",
    "Ticket",
    "TransitionalView",
    "View",
    "WouldBlock",
    "join",
    "sync",
]
