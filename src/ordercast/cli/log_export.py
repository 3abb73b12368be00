"""`ordercast log export`: a durable log as a file of JSON lines or Parquet, whole or not at all."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ordercast.cli.log_read import Bad, bounds, render
from ordercast.cli.terminal import progress
from ordercast.log import LogBatch, LogReader

ROW_GROUP_BYTES = 64 * 2**20


def run(args: argparse.Namespace) -> int:
    reader = LogReader(args.directory)
    start, end = bounds(args, reader)
    end = reader.end if end is None else min(end, reader.end)
    kind = args.format or ("parquet" if args.output.endswith(".parquet") else "jsonl")
    if args.output == "-":
        if kind == "parquet" or args.json:
            raise Bad("only JSON lines go to the output, and without --json")
        for batch in reader.read(start, end):
            sys.stdout.buffer.write(render(batch))
        sys.stdout.buffer.flush()
        return 0
    path = Path(args.output)
    if path.exists():
        raise Bad(f"{path} is there already; it is left as it is")
    write = _parquet_writer() if kind == "parquet" else _write_lines
    with progress(f"exporting to {path}", max(0, end - start)) as advance:
        size = _write_new(path, lambda file: write(file, _counted(reader.read(start, end), advance)))
    messages = max(0, end - start)
    if args.json:
        print(json.dumps({"file": str(path), "format": kind, "first": start, "end": end, "messages": messages,
                          "bytes": size}))  # fmt: skip
    else:
        print(f"{path}: {messages} messages from offset {start}, {size} bytes of {kind}")
    return 0


def _counted(batches: Iterator[LogBatch], advance: Callable[[int], None] | None) -> Iterator[LogBatch]:
    for batch in batches:
        yield batch
        if advance is not None:
            advance(len(batch))


def _write_new(path: Path, write: Callable[[BinaryIO], None]) -> int:
    """The file appears under its name when it is whole and on the disk."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.link(part, path)  # fails where a rename would overwrite
    except FileExistsError:
        raise Bad(f"{path} is there already; it is left as it is") from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return size


def _write_lines(file: BinaryIO, batches: Iterator[LogBatch]) -> None:
    for batch in batches:
        file.write(render(batch))


def _parquet_writer() -> Callable[[BinaryIO, Iterator[LogBatch]], None]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise Bad("Parquet needs pyarrow: install ordercast[parquet]") from None
    return lambda file, batches: _write_parquet(parquet, file, batches)


def _write_parquet(parquet: Any, file: BinaryIO, batches: Iterator[LogBatch]) -> None:
    from ordercast.log.arrow import SCHEMA, record_batches

    dictionary = ["sender", "service", "view"]
    with parquet.ParquetWriter(file, SCHEMA, compression="zstd", use_dictionary=dictionary) as writer:
        for batch in record_batches(batches, 2**20, ROW_GROUP_BYTES):
            writer.write_batch(batch)
