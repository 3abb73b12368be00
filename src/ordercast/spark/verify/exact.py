"""The local checker's own properties, asked of parts of a trace inside of tasks.

Two parts. A *block* with those of its messages that are not settled: what is found there makes the block suspect, no
more. And a trace's *slice*: all its configurations, starts and endings with the messages of suspect blocks and the odd
messages. The slice's verdict is the trace's, in the local checker's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ordercast.check import COREL_PROPERTIES, PROPERTIES
from ordercast.check.build import Builder
from ordercast.check.errors import TraceError
from ordercast.check.events import Deliver, Event, Send
from ordercast.check.trace import convert_row, read_events

PART_COLUMNS = ("trace", "block", "node", "step", "raw", "send", "msg", "conf", "sender", "safe")
"""What a part consists of: events as they were read (`raw`), and messages as columns."""

OF_BLOCKS = ("E2", "E6", "E7", "E8", "E9", "E10", "E11", "E12", "E14")
"""Violations of the others show in an odd message or in the configurations alone, which the slice holds anyway."""

Row = tuple[Any, ...]


def suspect(batches: Iterable[pa.RecordBatch], nodes: dict[int, tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """The blocks that violate something. Rows come sorted by block, node and step; a block is in memory at a time."""
    for (trace, block), rows in groupby(_rows(batches), key=itemgetter(0, 1)):
        events = list(rows)
        if any(row[6] is not None for row in events):
            model = _build(events, nodes[trace]).model
            model.finish()
            if any(PROPERTIES[name](model) is not None for name in OF_BLOCKS):
                yield {"trace": trace, "block": block}


def judge(batches: Iterable[pa.RecordBatch], nodes: dict[int, tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """What the slices of some traces violate. Rows come sorted by trace, node and step."""
    for trace, rows in groupby(_rows(batches), key=itemgetter(0)):
        model = _build(rows, nodes[trace]).model
        model.finish()
        for name, check in PROPERTIES.items():
            evidence = check(model)
            if evidence is not None:
                yield {"trace": trace, "property": name, "evidence": evidence}


def judge_corel(batches: Iterable[pa.RecordBatch], nodes: dict[int, tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    """Likewise of the properties of corel: configurations, starts, endings and sends, and all that corel does."""
    for trace, rows in groupby(_rows(batches), key=itemgetter(0)):
        builder = _build(rows, nodes[trace])
        builder.finish()
        for name, check in COREL_PROPERTIES.items() if builder.corel.spoken else ():
            evidence = check(builder.corel)
            if evidence is not None:
                yield {"trace": trace, "property": name, "evidence": evidence}


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in PART_COLUMNS), strict=True)


def _build(rows: Iterable[Row], nodes: tuple[str, ...]) -> Builder:
    builder = Builder(nodes)
    for node, of_node in groupby(rows, key=itemgetter(2)):
        builder.feed(nodes[node], _events(nodes[node], of_node), f"node {nodes[node]}", "event")
    return builder


def _events(node: str, rows: Iterable[Row]) -> Iterator[Any]:
    decode = msgspec.json.Decoder(Event).decode
    for _, _, _, step, raw, send, msg, conf, sender, safe in rows:
        if raw is not None:
            # A name that begins with `x-` is no name of the union's.
            yield decode(raw) if b'"x-' not in raw else convert_row(msgspec.json.decode(raw), "")
        elif send:
            yield Send(node, step, msg, conf, "safe" if safe else "agreed")
        else:
            yield Deliver(node, step, msg, sender, conf, "safe" if safe else "agreed")


def refusal(nodes: tuple[str, ...], files: list[tuple[str, Path]]) -> str:
    """What the local checker says of files of which some cannot be read, in its order."""
    builder = Builder(nodes)
    try:
        for node, path in files:
            unit = "row" if path.suffix == ".parquet" else "line"
            builder.feed(node, read_events(path), str(path), unit)
    except TraceError as error:
        return str(error)
    return f"{files[0][1]}: a number that does not fit into 64 bits"
