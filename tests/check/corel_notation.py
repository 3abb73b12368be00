"""The notation of hand-written traces with what corel does; the other tokens are those of `notation`.

`group:n1,n2,n3` the declared group (`group:n1*2,n2` with weights); `queue:a@0` and `order:a@0` places; `red:a`,
`yellow:a`, `green:a`, `durable:a`, `ack:a` (reported as ordered); `primary:1=n1,n2` established, `primary:1?n1,n2`
learned; `wiped` and `restored:5` what ordercast says of a lost disk and a snapshot. `has:a@0` is durable and queued
there, `done:a@0` the same and yellow, green, ordered and reported.
"""

from __future__ import annotations

from check.notation import Fields, Trace
from check.notation import parse as parse_transport

WORDS = {"ack": "acknowledged", "durable": "durable"}


def parse(text: str) -> Trace:
    trace: Trace = {}
    for line in text.strip().splitlines():
        node, _, rest = line.strip().partition(":")
        name = node.strip()
        events = trace.setdefault(name, [])
        for token in rest.split():
            for fields in _events(name, token):
                events.append({**fields, "node": name, "step": 10 * (len(events) + 1)})
    return trace


def _events(node: str, token: str) -> list[Fields]:
    word, colon, rest = token.partition(":")
    if token == "wiped":
        return [{"event": "x-wiped"}]
    if not colon:
        return parse_transport(f"{node}: {token}")[node]
    msg, _, place = rest.partition("@")
    if word == "has":
        return [{"event": "durable", "msg": msg}, {"event": "queue", "msg": msg, "pos": int(place)}]
    if word == "done":
        colours: list[Fields] = [{"event": "colour", "msg": msg, "colour": colour} for colour in ("yellow", "green")]
        order: list[Fields] = [{"event": "order", "msg": msg, "pos": int(place)}, {"event": "acknowledged", "msg": msg}]
        return [*_events(node, f"has:{rest}"), *colours, *order]
    if word in ("queue", "order"):
        return [{"event": word, "msg": msg, "pos": int(place)}]
    if word in ("red", "yellow", "green"):
        return [{"event": "colour", "msg": msg, "colour": word}]
    if word in WORDS:
        return [{"event": WORDS[word], "msg": msg}]
    if word == "restored":
        return [{"event": "x-restored", "pos": int(rest)}]
    if word == "group":
        members = [member.partition("*") for member in rest.split(",")]
        fields: Fields = {"event": "group", "members": [name for name, _, _ in members]}
        return [{**fields, "weights": [int(weight or 1) for _, _, weight in members]} if "*" in rest else fields]
    assert word == "primary", token
    sign = "?" if "?" in rest else "="
    number, _, names = rest.partition(sign)
    return [{"event": "primary", "number": int(number), "members": names.split(","), "learned": sign == "?"}]
