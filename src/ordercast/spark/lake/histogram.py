"""Durations as counts in buckets of at most 3.2 % width: counts can be added up, and percentiles read off them.

A bucket's number is that of HDR histograms with 5 bits: exact below 64 µs, then 32 buckets for each power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

EXACT = 64
_BITS = 5
QUANTILES = (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999))
CELLS = pa.list_(pa.struct([("index", pa.int32()), ("count", pa.int64())]))
SUMMARY = [("messages", pa.int64()), *((name, pa.int64()) for name, _ in QUANTILES), ("max_us", pa.int64()),
           ("histogram", CELLS)]  # fmt: skip
"""Columns of a summary, behind those of its keys."""


def index_of(values: np.ndarray) -> np.ndarray:
    """The bucket of each duration in µs; what lies before zero counts as zero."""
    values = np.maximum(values, 0)
    bits = np.frexp(values.astype(np.float64))[1]
    shift = np.maximum(bits - _BITS - 1, 0).astype(np.int64)
    index: np.ndarray = ((shift << _BITS) + (values >> shift)).astype(np.int32)
    return index


def upper_edge(index: np.ndarray) -> np.ndarray:
    """The longest duration that a bucket holds."""
    index = index.astype(np.int64)
    shift = np.maximum((index >> _BITS) - 1, 0)
    edge: np.ndarray = ((index - (shift << _BITS) + 1) << shift) - 1
    return edge


def codes_of(table: Any, keys: Sequence[str]) -> np.ndarray:
    """A number for each row, equal where all keys are."""
    codes = np.zeros(len(table), np.int64)
    for name in keys:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
    return codes


def summarize(cells: Any, keys: Sequence[str]) -> Any:
    """A row for each key: how many, percentiles, the longest. `cells` has the keys, `index`, `count` and `max_us`.

    A percentile is the upper edge of the bucket in which it lies: at most 3.2 % more than it, never less.
    """
    grouped = cells.group_by([*keys, "index"]).aggregate([("count", "sum"), ("max_us", "max")])
    grouped = grouped.sort_by([(name, "ascending") for name in (*keys, "index")])
    index = grouped.column("index").to_numpy()
    counts = grouped.column("count_sum").to_numpy()
    longest = grouped.column("max_us_max").to_numpy()
    codes = codes_of(grouped, keys)
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else np.zeros(0, np.int64)
    if not len(starts):
        fields = [*(cells.schema.field(name) for name in keys), *(pa.field(*column) for column in SUMMARY)]
        return pa.schema(fields).empty_table()
    so_far = np.cumsum(counts)
    totals = np.add.reduceat(counts, starts)
    before = so_far[starts] - counts[starts]
    maxima = np.maximum.reduceat(longest, starts)
    columns = {name: grouped.column(name).take(pa.array(starts)) for name in keys}
    columns["messages"] = pa.array(totals)
    for name, quantile in QUANTILES:
        rank = np.ceil(quantile * totals).astype(np.int64)
        edge = upper_edge(index[np.searchsorted(so_far, before + rank)])
        columns[name] = pa.array(np.minimum(edge, maxima))
    columns["max_us"] = pa.array(maxima)
    cell = pa.StructArray.from_arrays([pa.array(index, pa.int32()), pa.array(counts)], ["index", "count"])
    offsets = pa.array(np.concatenate([starts, [len(codes)]]), pa.int32())
    columns["histogram"] = pa.ListArray.from_arrays(offsets, cell).cast(CELLS)
    return pa.table(columns)


def cells_of(summary: Any, keys: Sequence[str]) -> Any:
    """The opposite of `summarize`: a row for each bucket."""
    histogram = summary.column("histogram").combine_chunks()
    parents = histogram.value_parent_indices()
    cell = histogram.flatten()
    columns = {name: summary.column(name).take(parents) for name in keys}
    longest = summary.column("max_us").take(parents)
    return pa.table({**columns, "index": cell.field("index"), "count": cell.field("count"), "max_us": longest})
