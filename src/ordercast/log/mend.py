"""A damaged frame of messages that wait for their place, put together again from another member's chunks.

Where these messages stand in the queue is this member's own knowledge, but what they are is not: a chunk is the same
bytes at every member that has it. A frame whose header is whole says how long it is and what its checksum was; if
chunks of the other member fill it and the checksum is right, it is what it was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ordercast.errors import LogCorrupt
from ordercast.log.frame import Frame, read_frame
from ordercast.log.reader import LogReader
from ordercast.wire.chunk import Chunk
from ordercast.wire.layout import WireError

GUESSES_MAX = 2
"""Chunks of a frame whose names are damaged too: whatever fits is tried in their place."""
TRIES_MAX = 20_000
"""How often."""


class _Step(NamedTuple):
    """The payload is filled up to `at`; so many chunks of it are still to be guessed."""

    at: int
    guesses: int
    chunk: bytes = b""
    before: _Step | None = None


class Known:
    """What another member has from an offset on, whether it knows its place or not."""

    def __init__(self, source: LogReader, start: int) -> None:
        reader = LogReader(source.directory)
        reader.extend(reader.end + reader.waiting)
        self._by_name: dict[tuple[str, int], bytes] = {}
        self._tries = 0
        # A member that runs may have stepped back from its last messages by now: those before them count.
        with suppress(LogCorrupt):
            for batch in reader.read(max(start, reader.earliest)):
                self._by_name[batch.chunk.stream, batch.chunk.first] = bytes(batch.chunk.raw)

    def mend(self, raw: bytearray, frame: Frame) -> bool:
        """Replaces the payload of a damaged frame by what it was, if that can be found."""
        damaged = bytes(raw[frame.at : frame.end])
        self._tries = TRIES_MAX
        for guesses in range(GUESSES_MAX + 1):
            for payload in self._fillings(memoryview(bytes(raw[frame.payload])), guesses):
                raw[frame.payload] = payload
                raw[frame.payload.stop : frame.end] = bytes(frame.padding)  # the checksum covers it too
                if read_frame(memoryview(raw), frame.at) is not None:
                    return True
                raw[frame.at : frame.end] = damaged
        return False

    def _fillings(self, payload: memoryview, guesses: int) -> Iterator[bytes]:
        """Chunks back to back that fill the payload, so many of them guessed, the others by what stands there."""
        ways = [iter([_Step(0, guesses)])]
        while ways:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
            elif step.at < len(payload):
                ways.append(self._next(payload, step))
            elif not step.guesses:
                yield _joined(step)

    def _next(self, payload: memoryview, step: _Step) -> Iterator[_Step]:
        rest = payload[step.at :]
        try:
            chunk = Chunk(rest)
        except WireError:
            chunk = None
        if chunk is not None:
            # One that the other member does not have may be sound: the checksum says.
            raw = self._by_name.get((chunk.stream, chunk.first), bytes(chunk.raw))
            if len(raw) <= len(rest):
                yield _Step(step.at + len(raw), step.guesses, raw, step)
        for raw in self._by_name.values() if step.guesses else ():
            if self._tries and len(raw) <= len(rest):
                self._tries -= 1
                yield _Step(step.at + len(raw), step.guesses - 1, raw, step)


def _joined(step: _Step | None) -> bytes:
    parts: list[bytes] = []
    while step is not None:
        parts.append(step.chunk)
        step = step.before
    return b"".join(reversed(parts))
