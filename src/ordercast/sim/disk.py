"""A node's disk: records that survive a crash, writes that take time, and the ways in which writes go wrong."""

from __future__ import annotations

from collections import deque
from random import Random

FAULTS = ("lose", "tear", "fail")
"""What can be made to happen to the next write.

- `lose`: it never becomes durable, nobody is told, and the power fails a while later.
- `tear`: the power fails during the write and a prefix of the record is left.
- `fail`: the write ends in an error, upon which the host stops the engine as after a crash.
"""


class Write:
    """A write under way; the disk completes writes in their order."""

    __slots__ = ("done_at", "fault", "key", "record", "write_id")

    def __init__(self, write_id: int, key: str, record: bytes, done_at: int, fault: str | None) -> None:
        self.write_id = write_id
        self.key = key
        self.record = record
        self.done_at = done_at
        self.fault = fault


class Disk:
    """The records of one disk. Its owner says when time passes; see `Node` for what it does about faults."""

    __slots__ = ("_latest", "armed", "forgetful", "jitter_us", "latency_us", "records", "rng", "writes")

    def __init__(self, rng: Random, latency_us: int, jitter_us: int) -> None:
        self.rng = rng
        self._latest = 0
        self.latency_us = latency_us
        self.jitter_us = jitter_us
        self.records: dict[str, bytes] = {}
        self.writes: deque[Write] = deque()
        self.armed: deque[str] = deque()
        self.forgetful = False
        """It has been wiped, or a torn write has destroyed a record."""

    def begin(self, now: int, write_id: int, key: str, record: bytes) -> Write:
        """Starts a write and tells, in `done_at`, when it will have reached the disk."""
        # Its turn comes when those before it are done.
        turn = max(self._latest, now)
        done_at = turn + self.latency_us + int(self.rng.random() * self.jitter_us)
        fault = self.armed.popleft() if self.armed else None
        if fault == "tear":
            # The power fails in the middle of this write, not after it.
            done_at = max(turn + 1, (turn + done_at) // 2)
        self._latest = done_at
        write = Write(write_id, key, record, done_at, fault)
        self.writes.append(write)
        return write

    def complete(self, write: Write) -> None:
        """The oldest write is durable."""
        oldest = self.writes.popleft()
        assert oldest is write, "a disk completes its writes in order"
        self.records[write.key] = write.record

    @property
    def has_lost(self) -> bool:
        """A write was lost: the power is about to fail."""
        return any(write.fault == "lose" for write in self.writes)

    def wipe(self) -> None:
        """Another disk, an empty one, takes the place of this."""
        self.records.clear()
        self.forgetful = True

    def heal(self, now: int, latency_us: int, jitter_us: int) -> list[Write]:
        """No more faults, and the pace of a sound disk, for the writes to come and for those under way.

        Returns the writes that are done earlier for it.
        """
        self.armed.clear()
        self.latency_us, self.jitter_us = latency_us, jitter_us
        sooner = []
        turn = now
        for write in self.writes:
            write.fault = None
            turn += latency_us + int(self.rng.random() * jitter_us)
            if turn < write.done_at:
                write.done_at = turn
                sooner.append(write)
            turn = write.done_at
        self._latest = turn
        return sooner

    def power_cut(self) -> None:
        """Writes under way end here.

        Each may have just been done, or not at all; a later one is never done when an earlier one is not. The one
        that was to be torn leaves a prefix of its record, possibly an empty one.
        """
        for write in self.writes:
            if write.fault == "tear":
                self.records[write.key] = write.record[: self.rng.randrange(len(write.record) or 1)]
                self.forgetful = True
                break
            if write.fault is not None or self.rng.random() < 0.5:
                break
            self.records[write.key] = write.record
        self.writes.clear()
        self._latest = 0
