"""Small files of messages become large ones: those of a date, in the order of their offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from ordercast.spark.lake.files import ParquetFile
from ordercast.spark.lake.raw import MESSAGES
from ordercast.spark.lake.store import messages_name, messages_range

FILE_BYTES = 128 * 2**20
"""About the size of a compacted file."""
SMALL_FILES = 8
"""A date with so many files below half of that size is compacted."""


class Merge(NamedTuple):
    """Files that become one."""

    paths: tuple[str, ...]
    target: str


def plan(folder: Path, file_bytes: int = FILE_BYTES, small_files: int = SMALL_FILES) -> Iterator[Merge]:
    """What is worth doing now."""
    for date in sorted((folder / "messages").glob("date=*")):
        files = sorted(date.glob("*.parquet"))
        sizes = {path: path.stat().st_size for path in files}
        if sum(size < file_bytes // 2 for size in sizes.values()) < small_files:
            continue
        group: list[Path] = []
        total = 0
        for path in files:
            large = sizes[path] >= file_bytes // 2
            if large or total + sizes[path] > file_bytes:
                yield from _merge(group)
                group, total = [], 0
            if not large:
                group.append(path)
                total += sizes[path]
        yield from _merge(group)


def _merge(group: list[Path]) -> Iterator[Merge]:
    if len(group) > 1:
        ranges = [messages_range(path) for path in group]
        date = group[0].parent.name.partition("=")[2]
        target = messages_name(date, ranges[0][0], max(last for _, last in ranges))
        yield Merge(tuple(map(str, group)), target)


def merge(task: Merge, staging: str) -> tuple[str, str, tuple[str, ...]]:
    """The staged file, its place, and those that it replaces. Runs on an executor."""
    file = ParquetFile(Path(staging), MESSAGES)
    for path in task.paths:
        batches: Iterator[Any] = pq.ParquetFile(path).iter_batches()
        for batch in batches:
            file.add(batch)
    return str(file.close()), task.target, task.paths
