"""Damage is refused with its place; only what was never synced is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.errors import LogCorrupt
from ordercast.log import Entry, LogReader, LogWriter
from ordercast.log.files import DiskFiles

from .samples import numbered


def fill(directory: Path, entries: int = 40) -> list[Path]:
    log = LogWriter(DiskFiles(directory), group="g", member="n1", segment_bytes=4096)
    for number in range(entries):
        log.append(Entry((numbered("n1", 1 + 10 * number, 10),)))
        log.append(Entry(green=log.end))
        log.commit()
    log.close()
    return sorted(directory.glob("*.seg"))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_each_byte_of_a_sealed_segment_is_covered(tmp_path: Path) -> None:
    path = fill(tmp_path)[1]
    sound = path.read_bytes()
    for at in range(0, len(sound), 7):
        flip(path, at)
        reader_says = list(damages(tmp_path))
        assert reader_says, f"byte {at} can be changed without notice"
        path.write_bytes(sound)
    assert list(LogReader(tmp_path).verify()) == []


def damages(directory: Path) -> list[str]:
    """What verification says, or the refusal to open."""
    try:
        return list(LogReader(directory).verify())
    except LogCorrupt as error:
        return [str(error)]


def test_damage_in_the_last_segment_is_refused_and_nothing_is_cut_off(tmp_path: Path) -> None:
    path = fill(tmp_path)[-1]
    sound = path.read_bytes()
    for at in range(0, len(sound) - 64, 11):
        flip(path, at)
        with pytest.raises(LogCorrupt, match=rf"{path.name}: damaged at byte \d+"):
            LogWriter(DiskFiles(tmp_path), segment_bytes=4096)
        assert path.stat().st_size == len(sound)
        path.write_bytes(sound)


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    fill(tmp_path)[1].unlink()
    with pytest.raises(LogCorrupt, match="missing"):
        LogWriter(DiskFiles(tmp_path))
    with pytest.raises(LogCorrupt, match="missing"):
        list(LogReader(tmp_path).read(0))


def test_a_reader_names_the_place(tmp_path: Path) -> None:
    path = fill(tmp_path)[1]
    flip(path, 1000)
    batches = LogReader(tmp_path).read(0)
    with pytest.raises(LogCorrupt, match=rf"{path.name}: damaged at byte \d+ \(offset \d+\)"):
        list(batches)


def test_a_frame_in_a_wrong_place_is_noticed(tmp_path: Path) -> None:
    """A misdirected write: sound in itself, but it belongs elsewhere."""
    first, second = fill(tmp_path)[:2]
    data, other = bytearray(first.read_bytes()), second.read_bytes()
    size = int.from_bytes(other[4:8], "little")
    meta = int.from_bytes(data[4:8], "little")
    frame = other[size : size + int.from_bytes(other[size + 4 : size + 8], "little")]
    data[meta : meta + len(frame)] = frame
    first.write_bytes(data)
    assert list(damages(tmp_path))
