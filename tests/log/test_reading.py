"""The reader: by offset, by time, in parts, beside the writer; Arrow; retention."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ordercast.errors import GroupError
from ordercast.log import Entry, LogReader, LogWriter, Retention, ViewRecord
from ordercast.log.files import DiskFiles
from ordercast.wire.chunk import Chunk, Stamp, make_body, make_chunk

from .samples import chunk, look, numbered


def make_log(directory: Path, chunks: int = 60) -> LogWriter:
    log = LogWriter(DiskFiles(directory), segment_bytes=4096)
    for number in range(chunks):
        log.append(Entry((numbered("n1", 1 + 5 * number, 5),)))
        log.append(Entry(green=log.end))
    log.commit()
    return log


def names(batches: object) -> list[bytes]:
    return [message.split()[0] for batch in batches for message in batch]  # type: ignore[attr-defined]


def test_every_range_of_offsets(tmp_path: Path) -> None:
    make_log(tmp_path)
    reader = LogReader(tmp_path)
    assert len(list(tmp_path.glob("*.seg"))) > 3
    expected = [b"n1:%d" % number for number in range(1, 301)]
    assert names(reader.read(0)) == expected
    for start, end in ((0, 1), (3, 4), (4, 6), (17, 203), (299, 300), (300, 300), (120, 900)):
        assert names(reader.read(start, end)) == expected[start:end]
        offsets = [offset for batch in reader.read(start, end) for offset in range(batch.offset, batch.end)]
        assert offsets == list(range(start, min(end, 300)))


def test_only_what_is_green_is_read_and_a_reader_follows(tmp_path: Path) -> None:
    log = make_log(tmp_path, 3)
    log.append(Entry((numbered("n2", 1, 4),)))
    log.commit()
    reader = LogReader(tmp_path)
    assert reader.end == 15
    assert len(names(reader.read(0))) == 15
    log.append(Entry((numbered("n3", 1, 2), numbered("n2", 1, 4)), rewind=15, green=17))
    log.write()
    assert reader.refresh() == 17
    assert names(reader.read(14)) == [b"n1:15", b"n3:1", b"n3:2"]
    for number in range(60):
        log.append(Entry((numbered("n4", 1 + 9 * number, 9),)))
        log.append(Entry(green=log.end))
    log.commit()
    followed = names(reader.follow(17, stop=lambda: True))
    assert followed[:5] == [b"n2:1", b"n2:2", b"n2:3", b"n2:4", b"n4:1"]
    assert len(followed) == 4 + 540


def test_a_tail_of_several_frames_goes_over_into_the_next_segment(tmp_path: Path) -> None:
    log = LogWriter(DiskFiles(tmp_path), segment_bytes=4096)
    log.append(Entry((numbered("n1", 1, 5),)))
    log.append(Entry(tuple(chunk("n2", 1 + number, [bytes(700_000)]) for number in range(5)), green=5))
    log.append(Entry(green=6, yellow=8))
    log.append(Entry(green=7))
    log.close()
    assert len(list(tmp_path.glob("*.seg"))) > 1
    found = look(tmp_path)
    assert (found.green, found.yellow, found.end) == (7, 8, 10)
    assert [chunk.first for chunk in found.tail] == [3, 4, 5]
    assert list(LogReader(tmp_path).verify()) == []


def test_parts_cover_the_range_and_none_is_empty(tmp_path: Path) -> None:
    make_log(tmp_path)
    reader = LogReader(tmp_path)
    for target in (1, 500, 5000, 10**9):
        parts = reader.parts(7, 290, target)
        assert parts[0].start == 7
        assert parts[-1].end == 290
        assert all(low.end == high.start for low, high in itertools.pairwise(parts))
        assert all(part.start < part.end for part in parts)
    assert len(reader.parts(7, 290, 500)) > 5


def test_offset_of_time(tmp_path: Path) -> None:
    make_log(tmp_path)  # chunk n begins with message 5n + 1 and has the stamp 1000 * (5n + 1)
    reader = LogReader(tmp_path)
    assert reader.offset_of_time(0) == 0
    assert reader.offset_of_time(1000 * 6) == 5
    assert reader.offset_of_time(1000 * 6 + 1) == 10
    assert reader.offset_of_time(10**9) == 300


def test_views_stand_before_their_messages(tmp_path: Path) -> None:
    log = LogWriter(DiskFiles(tmp_path), segment_bytes=4096)
    for number in range(40):
        log.append(Entry(view=ViewRecord(log.end, f"{number}:n1", ("n1",), True, number)))
        log.append(Entry((numbered("n1", 1 + 10 * number, 10),)))
        log.append(Entry(green=log.end))
    log.commit()
    reader = LogReader(tmp_path)
    assert [view.number for view in reader.views()] == list(range(40))
    assert [view.number for view in reader.views(95, 131)] == [10, 11, 12, 13]


def test_keys_and_headers_survive_and_arrow_sees_the_same(tmp_path: Path) -> None:
    bodies, keys, headers = [b"a", b"", b"ccc"], [b"k1", None, b""], [None, b"h", None]
    body = make_body(bodies, keys, headers, safe=True)
    log = LogWriter(DiskFiles(tmp_path))
    log.append(Entry((make_chunk("n1", 1, 77, Stamp(8, "8:n1", 3), body), chunk("n2", 1, [b"plain"], 78)), green=4))
    log.commit()
    batches = list(LogReader(tmp_path).read(0))
    assert [list(batch.records()) for batch in batches] == [
        [(b"k1", None, b"a"), (None, b"h", b""), (b"", None, b"ccc")],
        [(None, None, b"plain")],
    ]
    rows = [row for batch in LogReader(tmp_path).arrow(1) for row in batch.to_pylist()]
    assert rows[0] == {
        "offset": 1,
        "sender": "n1",
        "seq": 2,
        "timestamp_us": 77,
        "service": "safe",
        "view": "8:n1",
        "key": None,
        "headers": b"h",
        "value": b"",
    }
    assert [row["value"] for row in rows] == [b"", b"ccc", b"plain"]
    assert [row["offset"] for row in rows] == [1, 2, 3]


def test_arrow_batches_lie_in_the_mapped_file(tmp_path: Path) -> None:
    make_log(tmp_path, 1)
    batch = next(LogReader(tmp_path).read(0))
    value = batch.to_arrow()["value"].buffers()[2]
    blob, _ = batch.data()
    raw = Chunk(batch.chunk.raw)
    assert value.size == len(blob) == raw.data_bytes
    assert value.to_pybytes() == bytes(blob)
    assert not value.is_mutable


def test_retention_removes_whole_segments_from_the_front(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    bases = sorted(int(path.name[:20]) for path in tmp_path.glob("*.seg"))
    assert log.retain(Retention(before=bases[2] + 1), 0) == 2
    assert log.earliest == bases[2]
    reader = LogReader(tmp_path)
    assert reader.earliest == bases[2]
    with pytest.raises(GroupError, match="no longer in the log"):
        list(reader.read(0))
    assert names(reader.read(bases[2]))[0] == b"n1:%d" % (bases[2] + 1)
    assert log.retain(Retention(max_age_us=1000), 10**9) == len(bases) - 3
    assert log.retain(Retention(max_bytes=1), 0) == 0, "the last segment stays"
    log.close()
    found = look(tmp_path)
    assert (found.earliest, found.green, found.vector) == (bases[-1], 300, {"n1": 300})
