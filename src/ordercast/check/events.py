"""The events of a trace, typed: one struct for each row of the contract's table.

The same structs are what a line of `NODE.jsonl` decodes to and what a simulator hands to `check_events`, so that there
is one definition of an event. They are plain: the constructor checks nothing, the decoder checks every field.
The collector need not track them (`gc=False`), because nothing in them can refer back to them.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

KindName = Literal["regular", "transitional"]
ServiceName = Literal["agreed", "safe"]


class Conf(Struct, tag_field="event", tag="conf", gc=False):
    node: str
    step: int
    conf: str
    kind: KindName
    members: tuple[str, ...]
    # None is for callers that have no number at hand. In a file the field is a number or absent, never null.
    number: int | UnsetType | None = UNSET


class Send(Struct, tag_field="event", tag="send", gc=False):
    node: str
    step: int
    msg: str
    conf: str
    service: ServiceName


class Deliver(Struct, tag_field="event", tag="deliver", gc=False):
    node: str
    step: int
    msg: str
    sender: str
    conf: str
    service: ServiceName


class Recover(Struct, tag_field="event", tag="recover", gc=False):
    node: str
    step: int


class Leave(Struct, tag_field="event", tag="leave", gc=False):
    node: str
    step: int


class End(Struct, tag_field="event", tag="end", gc=False):
    node: str
    step: int


class Close(Struct, tag_field="event", tag="close", gc=False):
    node: str
    step: int


# What corel and mtp do. E1 to E14 say nothing about them; C1 to C9 speak of corel's.


class Group(Struct, tag_field="event", tag="group", gc=False):
    node: str
    step: int
    members: tuple[str, ...]
    weights: tuple[int, ...] = ()
    """Of the members, in their order; without them each counts for one."""


class Queue(Struct, tag_field="event", tag="queue", gc=False):
    node: str
    step: int
    msg: str
    pos: int


class Order(Struct, tag_field="event", tag="order", gc=False):
    node: str
    step: int
    msg: str
    pos: int


class Colour(Struct, tag_field="event", tag="colour", gc=False):
    node: str
    step: int
    msg: str
    colour: Literal["red", "yellow", "green"]


class Durable(Struct, tag_field="event", tag="durable", gc=False):
    node: str
    step: int
    msg: str


class Acknowledged(Struct, tag_field="event", tag="acknowledged", gc=False):
    node: str
    step: int
    msg: str


class Primary(Struct, tag_field="event", tag="primary", gc=False):
    node: str
    step: int
    number: int
    members: tuple[str, ...]
    learned: bool = False


class Reject(Struct, tag_field="event", tag="reject", gc=False):
    node: str
    step: int
    msg: str


class Extra(Struct, gc=False):
    """An event whose name begins with `x-`: its node and step are checked, the rest is the engine's own.

    Some are listened to. `x-wiped`: the node's disk was lost. `x-restored` with a `pos`: its queue begins anew there,
    with a snapshot of what was ordered before. `x-left`: it is in no primary component any more, though in the same
    configuration. `x-committed` with `number` and `members`: a primary component that it may not come to establish.
    """

    node: str
    step: int
    event: str
    pos: Any = UNSET
    number: Any = UNSET
    members: Any = UNSET


Event = (
    Conf
    | Send
    | Deliver
    | Recover
    | Leave
    | End
    | Close
    | Group
    | Queue
    | Order
    | Colour
    | Durable
    | Acknowledged
    | Primary
    | Reject
)
