"""The power is cut at every write boundary of a scripted run, and every disk that may be left recovers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from ordercast.errors import GroupError
from ordercast.log import Entry, LogWriter, ViewRecord
from ordercast.wire.chunk import Chunk

from .disk import Disk, MemoryFiles, PowerCut
from .samples import numbered


class Model:
    """What the log must hold after each entry, and how many entries are known to be durable."""

    def __init__(self) -> None:
        self.queue: list[str] = []
        self.states: list[tuple[tuple[str, ...], int, bytes | None]] = [((), 0, None)]
        self.durable = 0

    def note(self, entry: Entry, green: int, state: bytes | None) -> None:
        if entry.rewind is not None:
            del self.queue[entry.rewind :]
        for raw in entry.chunks:
            chunk = Chunk(raw)
            self.queue += [f"{chunk.sender}:{number}" for number in range(chunk.first, chunk.last + 1)]
        self.states.append((tuple(self.queue), green, state))


def script(disk: Disk, model: Model) -> None:
    """Appends, steps back, moving lines, states and views, several segments, with syncs between."""
    log = LogWriter(MemoryFiles(disk), segment_bytes=4096)
    green, state = 0, None

    def put(entry: Entry) -> None:
        nonlocal green, state
        log.append(entry)
        green = green if entry.green is None else entry.green
        state = state if entry.state is None else entry.state
        model.note(entry, green, state)

    def commit() -> None:
        written = len(model.states) - 1
        log.commit()
        model.durable = written

    put(Entry(state=b"first"))
    commit()
    for turn in range(12):
        first = 1 + 12 * turn
        put(
            Entry(
                (numbered("n1", first, 4), numbered("n1", first + 4, 4), numbered("n2", first, 4)), yellow=log.end + 12
            )
        )
        if turn % 3 == 0:
            # Another order for what is not green, and a new message in it.
            put(Entry((numbered("n3", 1 + turn, 1), numbered("n2", first, 4), numbered("n1", first, 8)), log.end - 12))
        if turn % 2 == 0:
            commit()
        put(
            Entry(
                green=log.end - (8 if turn % 3 == 0 else 4),
                yellow=log.end,
                view=ViewRecord(log.end, "4:n1", ("n1",), True, turn),
            )
        )
        if turn % 4 == 1:
            put(Entry(state=b"state %d" % turn, green=log.end))
        else:
            put(Entry(green=log.end))
        commit()
    log.close()


def begin_anew_script(disk: Disk, model: Model) -> None:
    """A member that is brought up from a snapshot, twice: its log begins anew, at another place and at the same."""
    log = LogWriter(MemoryFiles(disk), segment_bytes=4096)
    for turn in range(8):
        log.append(Entry((numbered("n1", 1 + 20 * turn, 20),)))
        model.note(Entry((numbered("n1", 1 + 20 * turn, 20),)), log.green, None)
        log.append(Entry(green=log.end))
        model.note(Entry(), log.green, None)
        log.commit()
        model.durable = len(model.states) - 1
    green = base = log.end + 300
    for again in range(3):
        base = base if again < 2 else log.green
        entry = Entry((numbered("n2", 1, 6),), state=b"brought up")
        model.queue = [f"n7:{number}" for number in range(1, base + 1)]
        model.note(entry, base, b"brought up")
        log.begin_anew(base, {"n7": base}, entry)
        model.durable = len(model.states) - 1
        for turn in range(3):
            log.append(Entry((numbered("n2", 7 + 40 * turn, 40),), state=b"later %d" % turn))
            green = base + 6 if again else base
            model.note(Entry((numbered("n2", 7 + 40 * turn, 40),)), log.green, b"later %d" % turn)
            log.append(Entry(green=green))
            model.note(Entry(), green, b"later %d" % turn)
            log.commit()
            model.durable = len(model.states) - 1
    log.close()


def check_recovery(files: dict[str, bytes], model: Model) -> None:
    disk = Disk.of(files)
    log = LogWriter(MemoryFiles(disk), segment_bytes=4096)
    found = log.recovered
    tail = tuple(f"{c.sender}:{number}" for c in found.tail for number in range(c.first, c.last + 1))
    legal = [
        number
        for number, (queue, green, state) in enumerate(model.states)
        if green == found.green and len(queue) == found.end and queue[green:] == tail and state == found.state
    ]
    assert legal, (found, model.states[model.durable])
    assert max(legal) >= model.durable, f"entry {model.durable} was synced, what is left is entry {max(legal)}"
    queue = model.states[max(legal)][0]
    last: dict[str, int] = {}
    for name in queue[: found.green]:
        sender, _, number = name.partition(":")
        last[sender] = int(number)
    assert found.vector == last
    # It goes on from there, and once more after another start.
    following = 1 + max(int(name.partition(":")[2]) for name in ["n9:0", *queue] if name.startswith("n9"))
    log.append(Entry((numbered("n9", following, 1),)))
    log.commit()
    again = LogWriter(MemoryFiles(disk)).recovered
    assert again.end == found.end + 1
    assert again.green == found.green


def boundaries(run: Callable[[Disk, Model], None]) -> int:
    disk = Disk()
    run(disk, Model())
    return disk.calls


def test_the_script_fills_several_segments() -> None:
    disk = Disk()
    script(disk, Model())
    assert len(disk.names) > 2


@pytest.mark.parametrize("run", [script, begin_anew_script])
def test_the_power_may_fail_at_every_write_boundary(run: Callable[[Disk, Model], None]) -> None:
    for cut in range(boundaries(run) + 1):
        disk, model = Disk(), Model()
        disk.cut_at = cut
        with contextlib.suppress(PowerCut):
            run(disk, model)
        for files in disk.survivors():
            check_recovery(files, model)


def test_the_power_may_fail_again_during_the_recovery() -> None:
    total = boundaries(script)
    for cut in range(3, total, 5):
        disk, model = Disk(), Model()
        disk.cut_at = cut
        with pytest.raises(PowerCut):
            script(disk, model)
        for files in disk.survivors():
            for second in range(8):
                halfway = Disk.of(files)
                halfway.cut_at = second
                with contextlib.suppress(PowerCut):
                    LogWriter(MemoryFiles(halfway), segment_bytes=4096)
                for left in halfway.survivors():
                    check_recovery(left, model)


def test_a_failed_sync_is_final() -> None:
    disk = Disk()
    log = LogWriter(MemoryFiles(disk))
    log.append(Entry((numbered("n1", 1, 1),)))
    disk.fail_sync_at = disk.calls + 2
    with pytest.raises(GroupError, match="cannot be written"):
        log.commit()
    for call in (log.commit, lambda: log.append(Entry())):
        with pytest.raises(GroupError, match="failed before"):
            call()
