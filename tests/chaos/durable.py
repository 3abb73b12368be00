"""A round of chaos for a durable group, judged by the logs, by what was acknowledged, and by the trace.

Faults: kill -9 of one member, of two and of all; suspension, partitions and cuts; a disk that is full; a byte flipped
of what was on disk for sure, which is refused, and repaired from another member if that one has what it takes. When all
is quiet every log holds the same messages, each acknowledged one at its offset, and what was green at any crash is
where it was; the trace keeps its properties.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from tests.chaos.campaign import QUIET_S, Failure, Member, Round
from tests.chaos.durable_member import CORRUPT, FAILED

from ordercast.check import check_trace
from ordercast.errors import GroupError, LogCorrupt
from ordercast.log import LogReader
from ordercast.log.frame import read_frame
from ordercast.log.repair import repair
from ordercast.log.segment import segment_name

SMALL_DISK_BYTES = 768 * 2**20
"""A round of 40 seconds fills up to half of it with log and trace."""
_SCRIPT = Path(__file__).with_name("durable_member.py")


class DurableRound(Round):
    """With a small disk, a mounted tmpfs, of the last member's own where root runs it."""

    options: ClassVar[dict[str, Any]] = {"script": _SCRIPT, "more": {"founders": 5}}
    each_kind = True

    def __init__(self, seed: int, directory: Path, seconds: float, *, small_disk: bool, **more: Any) -> None:
        self.green_at_crashes: list[tuple[str, int, str]] = []
        """Whose log, how many green messages it had, and their digest."""
        self.small_disk = small_disk
        self.damage: Counter[str] = Counter()
        super().__init__(seed, directory, seconds, **more)

    def _kinds(self) -> list[Callable[[], None]]:
        faults: list[Callable[[], None]] = [self._kill, self._kill_two, self._kill_all, self._suspend, self._corrupt]
        if self.small_disk:
            faults.append(self._fill_disk)
        if self.hosts is not None:
            faults += [self._lose, self._cut, self._partition, self._partition, self._heal, self._heal]
        return faults

    def _end(self, *members: Member) -> None:
        for member in members:
            member.kill()
        for member in members:
            self._note_green(member)

    def _note_green(self, member: Member) -> None:
        with contextlib.suppress(GroupError):  # a log without a segment, or one that has just been damaged
            reader = LogReader(member.data_dir)
            self.green_at_crashes.append((member.name, reader.end, digests(reader, [reader.end])[0]))

    def _kill(self) -> None:
        self._end(self.rng.choice(self.members))

    def _kill_two(self) -> None:
        self._end(*self.rng.sample(self.members, 2))

    def _kill_all(self) -> None:
        self._end(*self.members)

    def _fill_disk(self) -> None:
        """The member finds its disk full, says so and ends; what it has acknowledged stays."""
        member = self.members[-1]
        if member.process.poll() is not None:
            self._restart(member)
        if member.stopped:
            member.go_on()
        ballast = member.data_dir / "ballast"
        try:
            with ballast.open("wb") as file, contextlib.suppress(OSError):
                while True:  # the member writes too: what is left is taken until nothing is
                    free = os.statvfs(member.data_dir)
                    take = max(4096, free.f_bavail * free.f_frsize // 2)
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), take)
            try:
                status = member.process.wait(QUIET_S)
            except subprocess.TimeoutExpired:
                raise Failure(f"{member.name} goes on though its disk is full") from None
            if status != FAILED or "No space left on device" not in member.last_errors():
                member._gone()
        finally:
            ballast.unlink(missing_ok=True)
        self._end(member)

    def _corrupt(self) -> None:
        """Damage is refused with its place, nothing is cut off, and another member's log mends it if it can."""
        for member in self.rng.sample(self.members, len(self.members)):
            self._end(member)
            try:
                reader = LogReader(member.data_dir)
                places = synced_places(reader)
            except GroupError:
                continue
            donors = [other for other in self.members if other is not member and log_end(other) >= reader.end]
            if places and donors:
                self._damage(member, reader, *self.rng.choice(places), self.rng.sample(donors, len(donors)))
                return

    def _damage(self, member: Member, reader: LogReader, base: int, at: int, green: bool, donors: list[Member]) -> None:
        path = reader.directory / segment_name(base)
        sound = path.read_bytes()
        damaged = bytearray(sound)
        damaged[at + self.rng.randrange(64, 100)] ^= 1 << self.rng.randrange(8)
        path.write_bytes(damaged)
        found = [*LogReader(member.data_dir).verify()]
        if not any(f"damaged at byte {at}" in line for line in found):
            raise Failure(f"byte {at} of {path} is damaged, and verify says: {found}")
        if base == reader._bases[-1]:
            member.start()
            status = member.process.wait(QUIET_S)
            if status != CORRUPT or f"damaged at byte {at}" not in member.last_errors():
                raise Failure(f"byte {at} of {path} is damaged, and the member says: {member.last_errors()}")
            member.kill()
        if path.read_bytes() != damaged:
            raise Failure(f"a damaged segment was changed: {path}")
        for donor in donors:
            try:
                done = repair(member.data_dir, donor.data_dir)
            except LogCorrupt as error:
                # What waits for its place the other member need not have.
                if green or "does not have them" not in str(error) or path.read_bytes() != damaged:
                    raise Failure(f"byte {at} of {path} is damaged, and repair says: {error}") from None
                self.damage["refused"] += 1
                continue
            if [each.segment for each in done] != [path.name] or [*LogReader(member.data_dir).verify()]:
                raise Failure(f"{path} is not repaired: {done}")
            self.damage["repaired" if green else "mended"] += 1
            break
        else:
            # Nobody else has them: a disk that is lost for this member. Its bytes come back instead.
            path.write_bytes(sound)
            self.damage["lost"] += 1
        self._restart(member)

    def _restart(self, member: Member) -> None:
        if member.process.poll() not in (-9, FAILED, CORRUPT):
            member._gone()
        member.kill()
        member.start()

    def _quiet(self) -> None:
        self._wait_whole("after the faults")
        self._ask("quiet")
        until = time.monotonic() + QUIET_S
        while True:
            said = self._ask("status")
            # The line in the log follows the one in memory within moments.
            lines = {each["green"] for each in said} | {log_end(member) for member in self.members}
            if not any(each["waiting"] for each in said) and len(lines) == 1:
                return
            if time.monotonic() > until:
                raise Failure(f"the logs do not become one though the network is whole: {said}")
            time.sleep(0.1)

    def _check(self) -> dict[str, Any]:
        first = LogReader(self.members[0].data_dir)
        marks = [list(marks_of(LogReader(member.data_dir))) for member in self.members]
        for member, theirs in zip(self.members, marks, strict=True):
            if theirs != marks[0]:
                at = next((n for n, pair in enumerate(zip(theirs, marks[0], strict=False)) if pair[0] != pair[1]), -1)
                where = f"part at {at}" if at >= 0 else f"end at {len(theirs)} and {len(marks[0])}"
                raise self._failed(f"the logs of {member.name} and {self.members[0].name} {where}")
            if [*LogReader(member.data_dir).verify()]:
                raise self._failed(f"the log of {member.name} is damaged")
        counts: dict[str, int] = {}
        for offset, mark in enumerate(marks[0]):
            life, number = mark.rsplit(" ", 1)
            if int(number) != counts.get(life, 0) + 1:
                raise self._failed(f"at {offset} stands number {number} of life {life}, after {counts.get(life, 0)}")
            counts[life] = int(number)
        acked = 0
        for member in self.members:
            for line in member.data_dir.with_suffix(".acked").read_text().splitlines():
                offset_text, _, mark = line.partition(" ")
                acked += 1
                if marks[0][int(offset_text)] != mark.rstrip(":"):
                    raise self._failed(
                        f"{mark} was acknowledged at {offset_text}, where {marks[0][int(offset_text)]} is"
                    )
        ends = sorted({end for _, end, _ in self.green_at_crashes})
        expected = dict(zip(ends, digests(first, ends), strict=True))
        for name, end, digest in self.green_at_crashes:
            if expected[end] != digest:
                raise self._failed(f"what was green at {name} up to {end} when it crashed is not what it is now")
        together = self.directory / "trace"
        together.mkdir()
        for member in self.members:
            shutil.copy(member.data_dir / "trace" / f"{member.name}.jsonl", together)
        verdict = check_trace(together)
        if not verdict.ok:
            raise self._failed(f"{verdict.violations} (trace in {together})")
        return {
            "seed": self.seed,
            "faults": dict(self.faults),
            "damage": {how: self.damage[how] for how in ("repaired", "mended", "refused", "lost")},
            "lives": sum(member.lives for member in self.members),
            "messages": len(marks[0]),
            "acknowledged": acked,
            "crashes_compared": len(self.green_at_crashes),
            "segments": len(first._bases),
            "events": verdict.events,
        }

    def _failed(self, what: str) -> Failure:
        return Failure(f"seed {self.seed}: {what} (logs in {self.directory}, faults {dict(self.faults)})")


def synced_places(reader: LogReader) -> list[tuple[int, int, bool]]:
    """Frames of messages: segment, place, and whether all of them are green.

    They are those that a later frame knows to be on disk; damage behind that is a tail that may be cut off.
    """
    places = []
    for base in reader._bases:
        segment = reader._segment(base)
        index, at, synced = segment.index, 0, 0 if base == reader._bases[-1] else segment.size
        while at < index.complete and (frame := read_frame(segment.raw, at)) is not None:
            at, synced = frame.end, max(synced, frame.synced)
        places += [
            (base, place, end <= reader.end)
            for place, end in zip(index.places, index.ends, strict=True)
            if place < synced
        ]
    return places


def marks_of(reader: LogReader) -> Iterator[str]:
    """What each ordered message says of itself; changes of the declared group say nothing."""
    for batch in reader.read(reader.earliest):
        for data in batch:
            yield bytes(data).partition(b":")[0].decode()


def digests(reader: LogReader, ends: list[int]) -> list[str]:
    """Of the first so many messages, for each of `ends`, which grow."""
    found, digest, at = [], hashlib.sha256(), 0
    for end in ends:
        for batch in reader.read(at, end):
            for data in batch:
                digest.update(len(data).to_bytes(4, "little") + data)
        at = end
        found.append(digest.hexdigest())
    return found


def log_end(member: Member) -> int:
    try:
        return LogReader(member.data_dir).end
    except GroupError:
        return -1


@contextlib.contextmanager
def small_disk(directory: Path, use: bool) -> Iterator[bool]:
    """A file system of its own for the last member's data_dir, if it can be mounted; tells whether it is."""
    path = directory / "n4"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(path)]
    if not use or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
