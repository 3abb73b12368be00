"""The durable log alone: replay, opening a large one, group commit.

    python bench/log.py [--gb G] [--messages M] [--directory D]

A log of `M` messages of 100 bytes, `--chunk` of them multicast together, is replayed three ways: batches whose every
length and one byte of every message are read, Arrow batches, and single messages. Every checksum is compared. Then
the log is made `G` GB long with messages of 1 KB and opened, by a reader and by a writer, with a cold page cache where
the process may drop it. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ordercast.log import Entry, LogReader, LogWriter
from ordercast.log.files import DiskFiles
from ordercast.wire.chunk import Stamp, make_body, make_chunk

ENTRY_CHUNKS = 16


class Source:
    """Entries as a group writes them: chunks of several senders, the green line behind the last entry."""

    def __init__(self, size: int, chunk: int) -> None:
        self.chunk = chunk
        self._body = make_body([bytes([65 + number % 26]) * size for number in range(chunk)])
        self._next = {f"n{number}": 1 for number in range(1, 4)}
        self._nth = 0

    def entry(self, green: int) -> Entry:
        chunks = []
        for _ in range(ENTRY_CHUNKS):
            sender = f"n{1 + self._nth % 3}"
            self._nth += 1
            chunks.append(make_chunk(sender, self._next[sender], self._nth, Stamp(4, "4:n1", self._nth), self._body))
            self._next[sender] += self.chunk
        return Entry(tuple(chunks), green=green)


def grow(log: LogWriter, source: Source, until: Callable[[], bool]) -> None:
    while not until():
        for _ in range(8):
            log.append(source.entry(log.end))
        log.commit()
    log.append(Entry(green=log.end))
    log.commit()


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.seg"))


def drop_caches() -> bool:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def timed(work: Callable[[], int], runs: int = 3) -> tuple[float, int]:
    """The best time of some runs, and what the work counted."""
    best, count = float("inf"), 0
    for _ in range(runs):
        begin = time.perf_counter()
        count = work()
        best = min(best, time.perf_counter() - begin)
    return best, count


def replay_batches(directory: Path) -> int:
    """Every length is looked at and the first byte of every message is read."""
    reader = LogReader(directory)
    count = total = marks = 0
    for batch in reader.read(reader.earliest):
        blob, offsets = batch.data()
        ends = offsets.tolist()
        count += len(batch)
        total += ends[-1] - ends[0]
        marks += sum(map(blob.__getitem__, ends[:-1]))
    assert total
    assert marks
    return count


def replay_arrow(directory: Path) -> int:
    import pyarrow.compute as pc

    reader = LogReader(directory)
    count = total = 0
    for batch in reader.arrow(reader.earliest):
        count += len(batch)
        total += pc.sum(pc.binary_length(batch["value"])).as_py()
    assert total
    return count


def replay_messages(directory: Path) -> int:
    reader = LogReader(directory)
    count = total = 0
    for batch in reader.read(reader.earliest):
        for message in batch:
            total += len(message)
            count += 1
    assert total
    return count


def bench_replay(base: Path, messages: int, chunk: int) -> dict[str, object]:
    directory = base / f"replay-{chunk}"
    log = LogWriter(DiskFiles(directory))
    grow(log, Source(100, chunk), lambda: log.end >= messages)
    log.close()
    result: dict[str, object] = {"chunk": chunk, "messages": log.end, "bytes": size_of(directory)}
    for name, work in (("batches", replay_batches), ("arrow", replay_arrow), ("messages", replay_messages)):
        seconds, count = timed(lambda work=work: work(directory))  # type: ignore[misc]
        assert count == log.end
        result[f"{name}_per_s"] = round(count / seconds)
    shutil.rmtree(directory)
    return result


def bench_open(base: Path, size: int) -> dict[str, object]:
    directory = base / "large"
    log = LogWriter(DiskFiles(directory))
    begin = time.perf_counter()
    grow(log, Source(1000, 20), lambda: size_of(directory) >= size)
    written = time.perf_counter() - begin
    end = log.end
    result: dict[str, object] = {"bytes": size_of(directory), "segments": len([*directory.glob("*.seg")]),
                                 "append_mb_per_s": round(size_of(directory) / written / 1e6)}  # fmt: skip
    log._file.close()  # as after a crash: nothing says that the log was closed
    result["cold"] = drop_caches()
    begin = time.perf_counter()
    again = LogWriter(DiskFiles(directory))
    result["open_writer_s"] = round(time.perf_counter() - begin, 3)
    assert again.recovered.green == end
    drop_caches()
    begin = time.perf_counter()
    reader = LogReader(directory)
    result["open_reader_s"] = round(time.perf_counter() - begin, 3)
    begin = time.perf_counter()
    assert next(reader.read(end // 2)).offset == end // 2
    result["seek_by_offset_s"] = round(time.perf_counter() - begin, 3)
    begin = time.perf_counter()
    found = reader.offset_of_time(int(0.75 * end / 20))
    result["seek_by_time_s"] = round(time.perf_counter() - begin, 3)
    assert 0 < found < end
    drop_caches()
    begin = time.perf_counter()
    assert list(LogReader(directory).verify()) == []
    result["verify_mb_per_s"] = round(size_of(directory) / (time.perf_counter() - begin) / 1e6)
    shutil.rmtree(directory)
    return result


def bench_commit(base: Path, sizes: Sequence[int]) -> list[dict[str, object]]:
    """Entries of one chunk of one message, and how many share one sync."""
    rows: list[dict[str, object]] = []
    for together in sizes:
        directory = base / f"commit-{together}"
        log = LogWriter(DiskFiles(directory))
        body = make_body([bytes(1000)])
        number = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < 1.0:
            for _ in range(together):
                number += 1
                log.append(Entry((make_chunk("n1", number, 0, Stamp(4, "4:n1", number), body),), green=log.end))
            log.commit()
        seconds = time.perf_counter() - begin
        rows.append({"entries_per_sync": together, "entries_per_s": round(number / seconds)})
        log.close()
        shutil.rmtree(directory)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--messages", type=int, default=3_000_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the logs are made, on the disk to measure")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ordercast-bench-", dir=args.directory) as folder:
        base = Path(folder)
        result = {
            "benchmark": "log",
            "replay": [bench_replay(base, args.messages, chunk) for chunk in (10, 100, 500)],
            "commit": bench_commit(base, (1, 16, 256)),
            "open": bench_open(base, int(args.gb * 1e9)),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
