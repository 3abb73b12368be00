"""Gaps: places of the order and numbers of senders that are missing, new lives of senders, and silences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.spark.lake.store import LastOf

GAPS = pa.schema(
    [
        ("kind", pa.string()),
        ("sender", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("count", pa.int64()),
        ("offset", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("seconds", pa.float64()),
    ]
)
OFFSETS, SEQUENCE, RESTART, SILENCE = "offsets", "sequence", "restart", "silence"
_Gap = dict[str, Any]


def find(side: Any, silence_us: int) -> tuple[list[_Gap], dict[str, tuple[LastOf, LastOf]]]:
    """The gaps within a part, and the first and the last message of each of its senders."""
    offsets, stamps = side.column("offset").to_numpy(), side.column("stamp_us").to_numpy()
    seqs = side.column("seq").to_numpy()
    encoded = side.column("sender").combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    gaps = [
        offsets_gap(int(offsets[at]), int(offsets[at + 1]), int(stamps[at + 1]))
        for at in np.flatnonzero(np.diff(offsets) != 1)
    ]
    senders = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(senders, kind="stable")
    ends: dict[str, tuple[LastOf, LastOf]] = {}
    edges = np.flatnonzero(np.diff(senders[order], prepend=-1, append=len(names)))
    for begin, end in pairwise(edges):
        mine = order[begin:end]
        name = names[senders[mine[0]]]

        def message(at: int, mine: np.ndarray = mine) -> LastOf:
            return LastOf(int(seqs[mine[at]]), int(stamps[mine[at]]), int(offsets[mine[at]]))

        ends[name] = message(0), message(-1)
        unusual = (np.diff(seqs[mine]) != 1) | (np.diff(stamps[mine]) > silence_us)
        for at in map(int, np.flatnonzero(unusual)):
            gaps += between(name, message(at), message(at + 1), silence_us)
    return gaps, ends


def between(sender: str, before: LastOf, after: LastOf, silence_us: int) -> Iterator[_Gap]:
    """What lies between two messages of a sender that follow each other in the order."""
    common = {"sender": sender, "offset": after.offset, "time": after.stamp_us}
    seconds = (after.stamp_us - before.stamp_us) / 1e6
    if after.seq <= before.seq:
        missing = {"first": 1, "last": after.seq - 1} if after.seq > 1 else {}
        yield {**common, "kind": RESTART, **missing, "count": after.seq - 1, "seconds": seconds}
    elif after.seq != before.seq + 1:
        yield {
            **common, "kind": SEQUENCE, "first": before.seq + 1, "last": after.seq - 1,
            "count": after.seq - before.seq - 1, "seconds": seconds,
        }  # fmt: skip
    if after.stamp_us - before.stamp_us > silence_us:
        yield {**common, "kind": SILENCE, "count": 0, "seconds": seconds}


def offsets_gap(before: int, after: int, stamp_us: int) -> _Gap:
    return {
        "kind": OFFSETS, "first": before + 1, "last": after - 1, "count": after - before - 1, "offset": after,
        "time": stamp_us,
    }  # fmt: skip


def join(
    known: Mapping[str, LastOf], parts: list[dict[str, tuple[LastOf, LastOf]]], silence_us: int
) -> tuple[list[_Gap], dict[str, LastOf]]:
    """The gaps between parts that follow each other, and the last message of each sender behind them all."""
    gaps: list[_Gap] = []
    last = dict(known)
    for ends in parts:
        for sender, (first, final) in ends.items():
            if sender in last:
                gaps += between(sender, last[sender], first, silence_us)
            last[sender] = final
    return gaps, last
