"""What is left of a damaged segment: its sound frames, and what the rest can have been."""

from __future__ import annotations

from dataclasses import dataclass, field

from ordercast.log.frame import MORE, REWIND, Frame, FrameKind, find_frame, read_frame

Span = tuple[int, int, Frame | None]
"""Messages from one offset up to another, and the sound frame that holds them; None: it is damaged."""


@dataclass(slots=True)
class Remains:
    first: Frame | None = None
    last: Frame | None = None
    """The sound frame that ends the last entry which is whole."""
    state: Frame | None = None
    state_lost: bool = False
    """A later state than `state` may have been in what is damaged."""
    views: list[Frame] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    """What was live at the end."""
    damaged: list[Frame] = field(default_factory=list)
    """Headers of damaged frames that can be believed."""
    lost_bytes: int = 0


def collect(raw: memoryview, base: int) -> Remains:
    """Walks over all frames, damaged ones too."""
    remains = Remains()
    end = base
    pending: list[tuple[Frame, bool]] = []
    at = sequence = 0
    while at < len(raw):
        frame = read_frame(raw, at)
        if frame is not None and frame.sequence >= sequence:
            pending.append((frame, True))
        else:
            found = find_frame(raw, at + 8, sequence)
            if found is None:
                break  # nothing sound follows: a tail that was never synced, or as good as that
            remains.lost_bytes += found.at - at
            hole = _chain(raw, at, sequence, found)
            if hole is None:
                _forget(remains, end, found)
                pending.clear()
                end = found.offset
            else:
                pending += [(each, False) for each in hole]
                remains.damaged += hole
            frame = found
            pending.append((frame, True))
        at, sequence = frame.end, frame.sequence + 1
        remains.first = remains.first or frame
        if frame.flags & MORE:
            continue
        for each, sound in pending:
            end = _apply(remains, each, sound, end)
        pending.clear()
        remains.last = frame
    return remains


def _chain(raw: memoryview, at: int, sequence: int, found: Frame) -> list[Frame] | None:
    """The frames of a hole, if their headers still fit each other and what follows; they can be believed then."""
    hole: list[Frame] = []
    while at < found.at:
        frame = read_frame(raw, at, verify=False)
        if frame is None or (sequence and frame.sequence != sequence) or not _plausible(frame):
            return None
        hole.append(frame)
        at, sequence = frame.end, frame.sequence + 1
    if at != found.at:
        return None
    position = found.offset
    for frame in reversed(hole):
        if frame.kind == FrameKind.CHUNKS and frame.offset + frame.count != position and not found.flags & REWIND:
            return None
        position, found = frame.offset, frame
    return hole


def _plausible(frame: Frame) -> bool:
    known = frame.kind in list(FrameKind) and (frame.kind == FrameKind.META) == (frame.at == 0)
    return known and (frame.kind == FrameKind.CHUNKS) == (frame.count > 0)


def _forget(remains: Remains, end: int, found: Frame) -> None:
    """A hole of which nothing is known: whatever was live may have been stepped back from, or replaced."""
    remains.spans = [(start, stop, None) for start, stop, _ in remains.spans]
    if found.offset > end:
        remains.spans.append((end, found.offset, None))
    remains.state_lost = True


def _apply(remains: Remains, frame: Frame, sound: bool, end: int) -> int:
    """Takes a frame in; returns the new end."""
    spans = remains.spans
    if frame.flags & REWIND:
        while spans and spans[-1][0] >= frame.offset:
            spans.pop()
        if spans and spans[-1][1] > frame.offset:
            spans[-1] = (spans[-1][0], frame.offset, spans[-1][2])
        end = frame.offset
    if frame.kind == FrameKind.CHUNKS:
        spans.append((frame.offset, frame.offset + frame.count, frame if sound else None))
        return frame.offset + frame.count
    if frame.kind == FrameKind.STATE:
        remains.state_lost = not sound
        remains.state = frame if sound else remains.state
    elif frame.kind == FrameKind.VIEW and sound:
        remains.views.append(frame)
    return end
