"""Along each node: what a chunk begins in, and to which configurations' blocks each configuration belongs.

A *block* is a regular configuration R with what its members do until the next one: R, the transitional configuration
directly after it and all messages sent in R. The fold runs over configurations, starts and endings alone, node by node;
of the messages it needs only how many there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

FOLD_SCHEMA = (
    "kind string, trace int, node int, cid bigint, step bigint, conf string, regular boolean, members array<string>, "
    "raw binary, block string, previous string, dels bigint, sends bigint, owns bigint, events bigint, file int"
)
CARRY, CONTROL, ERROR, TOTAL = "carry", "control", "error", "total"


@dataclass(slots=True)
class _State:
    """Where a node is: the configuration in which the chunk begins, and how much happened in it already."""

    trace: int
    node: int
    last: int | None = None
    events: int = 0
    conf: str | None = None
    regular: bool = False
    block: str | None = None
    # The last regular configuration of this life.
    previous: str | None = None
    dels: int = 0
    sends: int = 0
    owns: int = 0


def fold(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Takes the control rows of some nodes, each node's in order."""
    state: _State | None = None
    cid: int | None = None
    for row in rows:
        if state is None or (state.trace, state.node) != (row["trace"], row["node"]):
            if state is not None:
                yield _total(state)
            state, cid = _State(row["trace"], row["node"]), None
        if row["what"] == "error":
            yield _error(row)
            continue
        if row["cid"] != cid:
            cid = row["cid"]
            yield _carry(state, row)
        if row["what"] == "summary":
            if state.last is not None and row["first"] <= state.last:
                yield _error(row)
            state.last = row["last"]
            state.events += row["events"]
            state.dels += row["dels"]
            state.sends += row["sends"]
            state.owns += row["owns"]
        else:
            yield _control(state, row)
    if state is not None:
        yield _total(state)


def _carry(state: _State, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": CARRY,
        "trace": state.trace,
        "node": state.node,
        "cid": row["cid"],
        "conf": state.conf,
        "regular": state.regular,
        "block": state.block,
        "dels": state.dels,
        "sends": state.sends,
        "owns": state.owns,
    }


def _control(state: _State, row: dict[str, Any]) -> dict[str, Any]:
    """Moves the node on. The row says whose block it is in: its own, its predecessor's, or both."""
    found = {name: row[name] for name in ("trace", "node", "cid", "step", "conf", "regular", "members", "raw")}
    found |= {"kind": CONTROL, "previous": state.previous}
    state.dels = state.sends = state.owns = 0
    if row["what"] != "conf":
        state.conf = state.block = state.previous = None
        state.regular = False
        return found
    if row["regular"]:
        state.block = state.previous = row["conf"]
    else:
        state.block = state.conf if state.regular else None
    state.conf, state.regular = row["conf"], row["regular"]
    return found | {"block": state.block}


def _error(row: dict[str, Any]) -> dict[str, Any]:
    return {"kind": ERROR, "trace": row["trace"], "node": row["node"], "file": row["file"]}


def _total(state: _State) -> dict[str, Any]:
    return {"kind": TOTAL, "trace": state.trace, "node": state.node, "events": state.events}
