"""Chunks and entries for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ordercast.log import LogWriter
from ordercast.log.files import DiskFiles
from ordercast.log.writer import Recovered
from ordercast.wire.chunk import Stamp, make_body, make_chunk


def chunk(sender: str, first: int, messages: Sequence[bytes], stamp_us: int = 0, nth: int = 0) -> bytes:
    return make_chunk(sender, first, stamp_us, Stamp(4, "4:n1", nth), make_body(messages))


def numbered(sender: str, first: int, count: int, size: int = 24) -> bytes:
    """Messages that say who they are."""
    messages = [f"{sender}:{number} ".encode().ljust(size, b".") for number in range(first, first + count)]
    return chunk(sender, first, messages, stamp_us=1000 * first, nth=first)


def look(directory: Path) -> Recovered:
    """What a writer finds there. It is closed without adding anything, as after a failure."""
    log = LogWriter(DiskFiles(directory))
    log.broken = OSError("only looked at")
    log.close()
    return log.recovered
