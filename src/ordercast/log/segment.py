"""Segments: their names, and how a whole one is scanned."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ordercast.errors import LogCorrupt
from ordercast.log.frame import FrameKind, find_frame, read_frame
from ordercast.log.index import Index
from ordercast.wire.chunk import Buffer
from ordercast.wire.layout import Malformed

SUFFIX = ".seg"
TEMPORARY = ".new"
FORMAT_VERSION = 1
META_BYTES_MAX = 2**24
"""The first frame of a segment: its vector has an entry for each life of each sender."""


class Meta(msgspec.Struct, omit_defaults=True):
    """The payload of a segment's first frame."""

    version: int
    base: int
    """The offset of its first message."""
    group: str
    member: str
    created_us: int
    vector: dict[str, int]
    """Of each stream (a life of a sender) the last message before `base`."""
    anew: bool = False
    """The log begins anew here: segments before this one are void, if a crash has left any."""


def segment_name(base: int) -> str:
    return f"{base:020}{SUFFIX}"


def segment_bases(names: list[str]) -> list[int]:
    """The first offsets of the segments among the files of a directory, in order."""
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdecimal())


@dataclass(frozen=True, slots=True)
class Scan:
    """What a segment holds, and where the first frame stands that is not sound (the size, if all are)."""

    meta: Meta
    index: Index
    sound: int


def scan(raw: Buffer, base: int, where: str, *, verify: bool = True) -> Scan:
    """Walks over the frames of a segment from its beginning."""
    meta = scan_meta(raw, base, where)
    index = Index(base)
    walk(raw, index, where, verify=verify)
    return Scan(meta, index, index.scanned)


def scan_meta(raw: Buffer, base: int, where: str) -> Meta:
    """The metadata of a segment, of which `raw` is the beginning."""
    first = read_frame(raw, 0)
    if first is None or first.kind != FrameKind.META:
        raise LogCorrupt(f"{where}: damaged at byte 0, it does not begin with a sound frame of metadata")
    try:
        meta = msgspec.json.decode(bytes(raw[first.payload]), type=Meta)
    except msgspec.MsgspecError as error:
        raise LogCorrupt(f"{where}: damaged at byte 0, unreadable metadata ({error})") from None
    if meta.version != FORMAT_VERSION:
        raise LogCorrupt(
            f"{where}: written in version {meta.version} of the format, this program reads {FORMAT_VERSION}"
        )
    if meta.base != base:
        raise LogCorrupt(f"{where}: it says that it begins with offset {meta.base}")
    return meta


def walk(raw: Buffer, index: Index, where: str, *, verify: bool = True) -> None:
    """Takes in the sound frames behind those that the index has."""
    while index.scanned < len(raw) and index.seal is None:
        at = index.scanned
        frame = read_frame(raw, at, verify=verify)
        if frame is None:
            return
        try:
            index.add(frame)
        except Malformed as error:
            raise LogCorrupt(f"{where}: damaged at byte {at}, {error}") from None


def check_tail(raw: Buffer, index: Index, where: str) -> None:
    """Raises unless what lies behind the sound frames can be the tail that was never synced.

    A later frame that knew these bytes to be on disk says that they were, so that they are damaged now.
    """
    at = index.scanned
    while at < len(raw):
        frame = find_frame(raw, at, index.sequence + 1)
        if frame is None:
            return
        if frame.synced > index.scanned:
            raise LogCorrupt(
                f"{where}: damaged at byte {index.scanned} (offset {index.end}), which was on disk once; "
                f"nothing was cut off"
            )
        at = frame.end
