"""Which files there are, and the chunks into which they are cut: a chunk is a range of bytes of one file.

Files are listed here, with the local checker's own function and its refusals; nothing is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ordercast.check.trace import node_files, parts

CHUNK_BYTES = 32 * 2**20
"""A task reads this much of a file at once; of Parquet the row groups that begin in it."""
FILES_MAX = 2**22
OFFSET_BITS = 40
"""A chunk is identified by the number of its file and the offset in it: one number that grows along a node's trace."""


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """One trace: its nodes in the order of their names, its files in the order in which the local checker reads."""

    directory: Path
    nodes: tuple[str, ...]
    files: tuple[tuple[str, Path], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    trace: int
    file: int
    node: int
    path: str
    start: int
    end: int
    last: bool


def find_trace(directory: Path) -> TraceFiles:
    """Raises TraceError where there is no trace, as the local checker does."""
    files = node_files(directory)
    each = tuple((node, part) for node, path in files.items() for part in parts(path))
    return TraceFiles(directory.absolute(), tuple(sorted(files)), each)


def cut(traces: dict[int, TraceFiles], chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The chunks of all traces. Files are numbered so that those of one node come in their order."""
    number = 0
    for index, trace in traces.items():
        for node, path in trace.files:
            size = path.stat().st_size if path.is_file() else 0
            for start in range(0, max(size, 1), chunk_bytes):
                end = min(start + chunk_bytes, size)
                place = trace.nodes.index(node)
                yield Chunk(index, number, place, str(path.absolute()), start, end, end == size)
            number += 1
            if number > FILES_MAX:
                raise ValueError(f"more than {FILES_MAX} files in one job")
