"""Rows that wait to be published, in files at a member: not durable, because who staged them can do so again."""

from __future__ import annotations

import re
import shutil
import time
from itertools import pairwise
from pathlib import Path
from struct import Struct

from ordercast.errors import GroupError

STAGE_AGE_MAX_S = 3600
"""Rows that nobody has asked for so long belong to a job that died."""
BATCH_BYTES_MAX = 2**27
"""Of one batch: it is one message of the transport, which others wait behind."""
_HEAD = Struct("<IIII")
_NAME = re.compile(r"[0-9a-f]{32}")

Cells = list[bytes | None]


def encode_rows(
    data: tuple[bytes, bytes], keys: tuple[bytes, bytes, bytes] | None, headers: tuple[bytes, bytes, bytes] | None
) -> bytes:
    """Columns as they go to a member: offsets and bytes, and where values may be missing a byte each that says so.

    Offsets are 32-bit integers from 0 on, one more than there are rows.
    """
    columns = [data]
    for nullable in (keys, headers):
        columns.append((b"", b"") if nullable is None else (nullable[0] + nullable[1], nullable[2]))
    rows = len(data[0]) // 4 - 1
    parts = [_HEAD.pack(rows, len(data[1]), 0 if keys is None else 1, 0 if headers is None else 1)]
    for offsets, blob in columns:
        parts += [offsets, len(blob).to_bytes(4, "little"), blob] if offsets else []
    return b"".join(parts)


def decode_rows(raw: bytes) -> tuple[list[bytes], Cells | None, Cells | None]:
    """Data, keys and headers of staged rows."""
    rows, _, with_keys, with_headers = _HEAD.unpack_from(raw)
    at = _HEAD.size
    columns: list[Cells | None] = []
    for there, nullable in ((1, False), (with_keys, True), (with_headers, True)):
        if not there:
            columns.append(None)
            continue
        validity = raw[at : at + rows] if nullable else b""
        at += len(validity)
        offsets = memoryview(raw[at : at + 4 * (rows + 1)]).cast("i")
        at += 4 * (rows + 1)
        size = int.from_bytes(raw[at : at + 4], "little")
        blob = raw[at + 4 : at + 4 + size]
        at += 4 + size
        cells: Cells = [blob[low:high] for low, high in pairwise(offsets)]
        if nullable:
            cells = [cell if there else None for cell, there in zip(cells, validity, strict=True)]
        columns.append(cells)
    data, keys, headers = columns
    if data is None or None in data or at != len(raw):
        raise GroupError("staged rows that are not whole")
    return [cell for cell in data if cell is not None], keys, headers


def too_large(size: int) -> GroupError:
    return GroupError(
        f"a batch of {size} bytes is more than {BATCH_BYTES_MAX}: publish less at a time (maxOffsetsPerTrigger of the "
        "source, or several writes)"
    )


class Stages:
    """A folder of staged rows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def put(self, stage: str, rows: bytes | memoryview) -> None:
        if len(rows) > BATCH_BYTES_MAX:
            raise too_large(len(rows))
        self._path(stage).write_bytes(rows)

    def get(self, stage: str) -> bytes:
        try:
            return self._path(stage).read_bytes()
        except FileNotFoundError:
            raise GroupError(f"stage {stage} is not here: the member was restarted, or it took too long") from None

    def size(self, stage: str) -> int:
        path = self._path(stage)
        return path.stat().st_size if path.exists() else 0

    def remove(self, stage: str) -> None:
        self._path(stage).unlink(missing_ok=True)

    def expire(self) -> None:
        """Removes what nobody is coming for."""
        limit = time.time() - STAGE_AGE_MAX_S
        for path in self._folder.iterdir():
            if path.stat().st_mtime < limit:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, stage: str) -> Path:
        if not _NAME.fullmatch(stage):
            raise GroupError("a stage without a proper name")
        return self._folder / stage
