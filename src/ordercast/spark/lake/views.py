"""Views as the log has them: who joined, who left, and, where traces tell it, why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ordercast.spark.lake.store import State

_TIME = pa.timestamp("us", tz="UTC")
_NAMES = pa.list_(pa.string())
VIEWS = pa.schema(
    [
        ("view_id", pa.string()),
        ("offset", pa.int64()),
        ("time", _TIME),
        ("members", _NAMES),
        ("primary", pa.bool_()),
        ("number", pa.int64()),
        ("previous_view_id", pa.string()),
        ("joined", _NAMES),
        ("left", _NAMES),
    ]
)
VIEW_CHANGES = pa.schema(
    [
        ("view_id", pa.string()),
        ("offset", pa.int64()),
        ("time", _TIME),
        ("member", pa.string()),
        ("change", pa.string()),
        ("cause", pa.string()),
        ("reason", pa.string()),
    ]
)
UNKNOWN = "unknown"
Causes = Mapping[tuple[str, str, str], tuple[str, str | None]]
"""Cause and reason, by view, member and change."""


class SeenView(NamedTuple):
    """A view in the log: it stands before the message with this offset."""

    offset: int
    time_us: int
    value: bytes


def view_rows(state: State, seen: Sequence[SeenView]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of VIEWS and VIEW_CHANGES for those that are new; `state` moves on."""
    views: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    for view in seen:
        value = json.loads(view.value)
        if value["id"] in state.views_ahead:
            continue
        state.views_ahead[value["id"]] = view.offset
        members = list(value["members"])
        previous, before = state.view or (None, [])
        place = {"view_id": value["id"], "offset": view.offset, "time": view.time_us}
        joined = [name for name in members if name not in before]
        left = [name for name in before if name not in members]
        views.append({
            **place, "members": members, "primary": value["primary"], "number": value["number"],
            "previous_view_id": previous, "joined": joined, "left": left,
        })  # fmt: skip
        changes += [{**place, "member": name, "change": "joined", "cause": UNKNOWN} for name in joined]
        changes += [{**place, "member": name, "change": "left", "cause": UNKNOWN} for name in left]
        state.view = value["id"], members
    return views, changes


def with_causes(changes: Any, causes: Causes) -> Any:
    """VIEW_CHANGES with what traces say."""
    rows = changes.to_pylist()
    for row in rows:
        found = causes.get((row["view_id"], row["member"], row["change"]))
        if found is not None:
            row["cause"], row["reason"] = found
    return pa.Table.from_pylist(rows, schema=VIEW_CHANGES)
