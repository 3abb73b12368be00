"""A damaged log is repaired with another member's, byte by byte, or refused where only this member could know."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from ordercast.errors import GroupError, LogCorrupt
from ordercast.log import Entry, LogReader, LogWriter, ViewRecord
from ordercast.log.files import DiskFiles
from ordercast.log.repair import repair

from .samples import look, numbered


def fill(directory: Path, member: str, entries: int = 40, per_segment: int = 4096, tail: int = 0) -> Path:
    """The same order at each member; segments, views, state and what waits for its place are each one's own."""
    log = LogWriter(DiskFiles(directory), group="g", member=member, segment_bytes=per_segment)
    for number in range(entries):
        log.append(Entry((numbered("n1", 1 + 10 * number, 6), numbered("n2", 1 + 4 * number, 4))))
        log.append(Entry(green=log.end))
        if number % 7 == 3:
            log.append(Entry(state=f"{member} state {number}".encode()))
            log.append(Entry(view=ViewRecord(log.end, f"{number}:{member}", (member,), True, number)))
        log.commit()
    if tail:
        log.append(Entry((numbered("n3", 1, tail),), yellow=log.end))
    log.close()
    return directory


def everything(directory: Path) -> tuple[list[bytes], list[str]]:
    reader = LogReader(directory)
    return [message for batch in reader.read(0) for message in batch], [view.id for view in reader.views()]


def hurt(path: Path, at: int, size: int) -> None:
    data = bytearray(path.read_bytes())
    for place in range(at, min(at + size, len(data))):
        data[place] ^= 0xA5
    path.write_bytes(data)


@pytest.mark.parametrize("size", [1, 700])
def test_every_place_of_a_sealed_segment(tmp_path: Path, size: int) -> None:
    mine, theirs = fill(tmp_path / "a", "a"), fill(tmp_path / "b", "b", per_segment=9000)
    messages, views = everything(mine)
    for path in sorted(mine.glob("*.seg"))[:2]:
        sound = path.read_bytes()
        for at in range(0, len(sound), 331):
            hurt(path, at, size)
            assert list(damages(mine))
            (done,) = repair(mine, theirs)
            assert done.segment == path.name
            assert (mine / done.kept).read_bytes() != sound
            assert list(LogReader(mine).verify()) == []
            found, seen = everything(mine)
            assert found == messages
            assert set(seen) <= set(views)
            assert look(mine).green == len(messages)
            path.write_bytes(sound)


def damages(directory: Path) -> list[str]:
    try:
        return list(LogReader(directory).verify())
    except LogCorrupt as error:
        return [str(error)]


def attempt(mine: Path, theirs: Path) -> str:
    try:
        repair(mine, theirs)
    except LogCorrupt as error:
        return str(error)
    return ""


def test_every_byte_of_the_open_segment_is_repaired_or_refused(tmp_path: Path) -> None:
    """Where it is repaired nothing is different, down to the state and to what waits for its place."""
    mine, theirs = fill(tmp_path / "a", "a", tail=5), fill(tmp_path / "b", "b")
    before = look(mine)
    messages, _ = everything(mine)
    path = sorted(mine.glob("*.seg"))[-1]
    sound = path.read_bytes()
    repaired = refused = 0
    for at in range(0, len(sound), 29):
        hurt(path, at, 1)
        try:
            look(mine)
        except LogCorrupt:
            refusal = attempt(mine, theirs)
            if refusal:
                assert "cannot be repaired" in refusal
                refused += 1
            else:
                repaired += 1
                after = look(mine)
                assert (after.green, after.yellow, after.end) == (before.green, before.yellow, before.end)
                assert (after.state, after.vector) == (before.state, before.vector)
                assert [bytes(chunk.raw) for chunk in after.tail] == [bytes(chunk.raw) for chunk in before.tail]
                assert everything(mine)[0] == messages
        path.write_bytes(sound)
    assert repaired > 20
    assert refused > 5


@pytest.mark.parametrize("ordered", [True, False])
def test_what_waits_for_its_place_is_mended_from_a_member_that_has_it(tmp_path: Path, ordered: bool) -> None:
    """In whatever order that one has it: the checksum of the damaged frame says that it is what it was."""
    parts = (numbered("n3", 1, 5), numbered("n4", 1, 3, size=400), numbered("n3", 6, 2))
    orders = {"a": parts, "b": (parts[1], numbered("n5", 1, 4), *parts[::2])}
    for member, chunks in orders.items():
        log = LogWriter(DiskFiles(tmp_path / member), group="g", member=member)
        log.append(Entry((numbered("n1", 1, 6),)))
        log.append(Entry(green=6))
        log.append(Entry(chunks, yellow=11))
        if ordered and member == "b":
            log.append(Entry(green=log.end))
        log.append(Entry(state=b"what only this member knows"))
        log.commit()
        log.close()
    mine, theirs = tmp_path / "a", tmp_path / "b"
    (path,) = mine.glob("*.seg")
    sound, before = path.read_bytes(), look(mine)
    frame = sound.index(parts[0]) - 64
    end = sound.index(parts[2]) + len(parts[2])
    for size in (1, 40):
        for at in range(frame + 64, end - size, 13):
            hurt(path, at, size)
            with pytest.raises(LogCorrupt, match=f"damaged at byte {frame}"):
                look(mine)
            (done,) = repair(mine, theirs)
            assert done.messages == 6 + 10
            after = look(mine)
            assert (after.green, after.yellow, after.end, after.state) == (6, 11, 16, before.state)
            assert [bytes(chunk.raw) for chunk in after.tail] == [*parts]
            path.write_bytes(sound)
    hurt(path, frame + 70, 1)
    assert "does not have them" in attempt(mine, fill(tmp_path / "c", "c", entries=1))


def test_a_missing_segment_comes_back(tmp_path: Path) -> None:
    mine, theirs = fill(tmp_path / "a", "a"), fill(tmp_path / "b", "b")
    messages, _ = everything(mine)
    sorted(mine.glob("*.seg"))[1].unlink()
    repair(mine, theirs)
    assert list(LogReader(mine).verify()) == []
    assert everything(mine)[0] == messages


def test_what_the_other_log_must_be(tmp_path: Path) -> None:
    mine = fill(tmp_path / "a", "a")
    hurt(sorted(mine.glob("*.seg"))[2], 900, 1)
    with pytest.raises(LogCorrupt, match="it needs offsets"):
        repair(mine, fill(tmp_path / "short", "b", entries=3))
    foreign = LogWriter(DiskFiles(tmp_path / "foreign"), group="other")
    foreign.append(Entry((numbered("n1", 1, 1),)))
    foreign.close()
    with pytest.raises(GroupError, match="of group 'other'"):
        repair(mine, tmp_path / "foreign")


def test_a_sound_log_is_left_alone_and_one_in_use_is_refused(tmp_path: Path) -> None:
    mine, theirs = fill(tmp_path / "a" / "log", "a"), fill(tmp_path / "b", "b")
    assert repair(mine, theirs) == []
    with (tmp_path / "a" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(GroupError, match="in use"):
            repair(tmp_path / "a", theirs)
