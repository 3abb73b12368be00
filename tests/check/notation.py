"""A short notation for hand-written traces, so that a whole one fits on a screen.

A line is a node with its events in order; a line that begins with the node again continues it:

    n1: s1=n1 t1~n1 r=n1,n2 +a@r a<n1@r close

`r=n1,n2` regular configuration r; `t~n1` transitional; `+a@r` sends a in r; `a<n1@r` delivers a of sender n1 in r;
a `!` after the message (`+a!@r`, `a!<n1@r`) means safe; `r=n1#4` has number 4; and recover, leave, end, close.
"""

from __future__ import annotations

import json
from pathlib import Path

Fields = dict[str, object]
Trace = dict[str, list[Fields]]


def parse(text: str) -> Trace:
    trace: Trace = {}
    for line in text.strip().splitlines():
        node, _, rest = line.strip().partition(":")
        events = trace.setdefault(node.strip(), [])
        for token in rest.split():
            events.append({"node": node.strip(), "step": 10 * (len(events) + 1), **_event(token)})
    return trace


def _event(token: str) -> Fields:
    if token in ("recover", "leave", "end", "close"):
        return {"event": token}
    if token[0] == "+":
        msg, _, conf = token[1:].partition("@")
        return {"event": "send", "msg": msg.rstrip("!"), "conf": conf, "service": _service(msg)}
    if "<" in token:
        msg, _, rest = token.partition("<")
        sender, _, conf = rest.partition("@")
        fields = {"event": "deliver", "msg": msg.rstrip("!"), "sender": sender, "conf": conf}
        return {**fields, "service": _service(msg)}
    sign = "=" if "=" in token else "~"
    conf, _, rest = token.partition(sign)
    members, _, number = rest.partition("#")
    kind = "regular" if sign == "=" else "transitional"
    fields = {"event": "conf", "conf": conf, "kind": kind, "members": members.split(",") if members else []}
    return {**fields, "number": int(number)} if number else fields


def _service(msg: str) -> str:
    return "safe" if msg.endswith("!") else "agreed"


def write(trace: Trace, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    for node, events in trace.items():
        text = "".join(json.dumps(event) + "\n" for event in events)
        (directory / f"{node}.jsonl").write_text(text)
    return directory


def joined(*nodes: str, conf: str = "r") -> str:
    """The beginning of a trace: each node alone, then all of them together in `conf`."""
    return "\n".join(f"{node}: s{node[1:]}={node} i{node[1:]}~{node} {conf}={','.join(nodes)}" for node in nodes)
