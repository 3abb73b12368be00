"""Parquet files that are whole or not there: written beside their place, synced, and renamed."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP_BYTES = 16 * 2**20
COMPRESSION = "zstd"


class ParquetFile:
    """One that grows by record batches; a row group is about ROW_GROUP_BYTES."""

    def __init__(self, folder: Path, schema: Any) -> None:
        self.path = folder / f"{uuid.uuid4().hex}.parquet"
        self._schema = schema
        self._writer = pq.ParquetWriter(self.path, schema, compression=COMPRESSION, compression_level=1)
        self._waiting: list[Any] = []
        self._bytes = 0

    def add(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._bytes = [], 0

    def close(self) -> Path:
        self._write()
        self._writer.close()
        _sync(self.path)
        return self.path


def write_parquet(folder: Path, table: Any) -> str:
    """A small table, under a name that nobody else has."""
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(table, path, compression=COMPRESSION)
    _sync(path)
    return str(path)


def read_parquet(path: Path, schema: Any) -> Any:
    """The file's rows; none where there is no file yet."""
    return pq.read_table(path, schema=schema, partitioning=None) if path.exists() else schema.empty_table()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
