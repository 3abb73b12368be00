"""Writes what a member does as a trace that `ordercast check` reads.

What is written before what is part of the trace's format: the driver calls in the order of the engine's effects and
flushes before anything leaves the process or reaches the application. Lines are collected and written whole, in one
call for each turn of the driver's loop.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path

from ordercast.engine.assemble import Batch
from ordercast.engine.contract import Report, View
from ordercast.errors import GroupError

_LAST_BYTES = 4096
_LOOK_BACK_BYTES = 2**20
CLOCK_US = 100_000
"""So often the trace says what time it is, in an event `x-time`, while there is something to say."""
LINES = 256
"""Lines of a run of messages differ in two numbers only. They are made so many at a time in a template that is kept, by
writing one digit of all its lines at once."""
_FEW = 4
"""So many lines are sooner written one by one."""
_LOW = 1000
"""Up to which the digits of numbers that follow each other are known beforehand: the last three."""
_HUNDREDS, _TENS, _ONES = (bytearray((b"%03d" % (i % _LOW))[place] for i in range(_LOW + LINES)) for place in range(3))
_BUFFER_BYTES = 256 * 2**10
"""Lines are written to the file when they are as many bytes, if not before."""


class _Shape:
    """The lines of messages that differ in their step and number only: what stands between and behind these.

    With `between` they have a third number, the place of each message, and this stands before it.
    """

    __slots__ = ("after", "before", "between", "columns", "high", "stride", "template")

    def __init__(self, before: str, after: str, between: str = "") -> None:
        self.before = before.encode()
        self.between = between.encode()
        self.after = after.encode()
        self.high = (0, 0, 0)
        """The thousands of the numbers that stand in the template."""

    def line(self, head: bytes, step: int, number: int, place: int) -> bytes:
        if self.between:
            return b"%b%d%b%d%b%d%b" % (head, step, self.before, number, self.between, place, self.after)
        return b"%b%d%b%d%b" % (head, step, self.before, number, self.after)

    def lines(self, head: bytes, step: int, number: int, place: int, count: int) -> memoryview:
        """So many lines, at most LINES and within a thousand of each number; they stand until the next call."""
        high = step // _LOW, number // _LOW, place // _LOW
        if high != self.high:
            self._make_template(head, step, number, place, high)
        template, stride = self.template, self.stride
        stop = (count - 1) * stride + 1
        for at, first in zip(self.columns, (step, number, place), strict=False):
            low = first % _LOW
            end = low + count
            template[at : at + stop : stride] = _HUNDREDS[low:end]
            template[at + 1 : at + 1 + stop : stride] = _TENS[low:end]
            template[at + 2 : at + 2 + stop : stride] = _ONES[low:end]
        return memoryview(template)[: count * stride]

    def _make_template(self, head: bytes, step: int, number: int, place: int, high: tuple[int, int, int]) -> None:
        start = len(b"%b%d" % (head, step))
        middle = start + len(b"%b%d" % (self.before, number))
        line = self.line(head, step, number, place)
        self.high, self.stride, self.template = high, len(line), bytearray(line * LINES)
        placed = (len(line) - len(self.after) - 3,) if self.between else ()
        self.columns = (start - 3, middle - 3, *placed)


class Recorder:
    """The trace file of one member. A file that is there already is continued: the member came back.

    A new file is made with its first lines, since one without any would be no trace.
    """

    def __init__(self, directory: Path, name: str) -> None:
        if "/" in name:
            raise GroupError(f"a member with a trace cannot have a name with a slash: {name!r}")
        self.path = directory / f"{name}.jsonl"
        self._buffer = bytearray(_BUFFER_BYTES)
        """Kept, since memory that is new to a process costs more than what is done to it here."""
        self._end = 0
        """Up to where there are lines in it that have not been written."""
        self._shapes: dict[tuple[object, ...], _Shape] = {}
        self._shape: _Shape | None = None
        """The open run: its lines, the number and place of its first message, and how many there are."""
        self._number = self._place = self._count = 0
        self._fd = -1
        self._step = 0
        self._told_us = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if self.path.exists():
                self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
                self._step = self._continue()
            elif not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            self.close()
            raise GroupError(f"trace {self.path}: {error.strerror}") from None
        except ValueError:
            self.close()
            raise GroupError(f"trace {self.path}: its last line is not one of a trace") from None
        self._head = f'{{"node":{quoted(name)},"step":'.encode()
        self.continued = bool(self._step)
        """Whether there are lives before this one."""
        if self._step:
            self._line(f'"event":"recover","time_us":{_now_us()}')

    def _continue(self) -> int:
        """Cuts a line off that the last life did not finish, and tells the last step."""
        size = os.fstat(self._fd).st_size
        take = _LAST_BYTES
        while True:
            # Until there are two newlines, between which the last whole line lies, or it is all of the file.
            tail = os.pread(self._fd, take, max(size - take, 0))
            if take >= size or tail.count(b"\n") > 1:
                break
            take *= 2
        whole = tail.rfind(b"\n") + 1
        if whole < len(tail):
            os.ftruncate(self._fd, size - len(tail) + whole)
        lines = tail[:whole].splitlines()
        if not lines:
            return 0
        _, _, rest = lines[-1].partition(b'"step":')
        return int(rest.partition(b",")[0])

    def ordered_before(self) -> int:
        """Up to where the lives before this one told the global order."""
        at = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        rest = b""
        while at > 0:
            take = min(at, _LOOK_BACK_BYTES)
            at -= take
            lines = os.pread(self._fd, take, at) + rest
            found = lines.rfind(b'"event":"order"')
            wiped = lines.rfind(b'"event":"x-wiped"')
            if max(found, wiped) >= 0:
                place = re.match(rb'[^\n]*"pos":(\d+)', lines[max(found, 0) :])
                if wiped > found or place is None:
                    return 0
                return int(place[1]) + 1
            rest = lines[:_LAST_BYTES]  # a line may lie on both sides
        return 0

    def _line(self, rest: str) -> None:
        self._cut()
        self._step += 1
        self._put(b"%b%d,%b}\n" % (self._head, self._step, rest.encode()))

    def conf(self, view: View) -> None:
        members = ",".join(map(quoted, view.members))
        self._line(
            f'"event":"conf","conf":{quoted(view.id)},"kind":"{view.kind.value}","members":[{members}],'
            f'"number":{view.number},"time_us":{_now_us()}'
        )
        self._shapes.clear()  # they are of views that are over

    def sent(self, name: str, view_id: str, first: int, count: int, service: str) -> None:
        """Messages `first` and on got their places in `view_id`."""
        key = name, view_id, service
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(
                ',"event":"send","msg":' + quoted(f"{name}/{view_id}/")[:-1],
                f'","conf":{quoted(view_id)},"service":"{service}"}}\n',
            )
        self._run(shape, first, count)

    def delivered(self, batch: Batch, sender: str, sent_in: str, view_id: str) -> None:
        """Messages of one sender, in `view_id`; their numbers are those of the view in which they were sent."""
        key = sender, sent_in, view_id, batch.service
        shape = self._shapes.get(key)
        if shape is None:
            service = batch.service.name.lower()
            shape = self._shapes[key] = _Shape(
                ',"event":"deliver","msg":' + quoted(f"{sender}/{sent_in}/")[:-1],
                f'","sender":{quoted(sender)},"conf":{quoted(view_id)},"service":"{service}"}}\n',
            )
        self._run(shape, batch.first, len(batch))

    def messages(self, event: str, row: str, first: int, count: int, more: str = "") -> None:
        """An event of each of so many messages: those of a row are called by its name and their numbers.

        `more` is what else the lines say, the same in all of them, with a comma before it.
        """
        key = event, row, more
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(_named(event, row), f'"{more}}}\n')
        self._run(shape, first, count)

    def placed(self, event: str, row: str, first: int, count: int, place: int) -> None:
        """Likewise with the place of each, from `place` on."""
        shape = self._shapes.get((event, row))
        if shape is None:
            shape = self._shapes[event, row] = _Shape(_named(event, row), "}\n", '","pos":')
        if shape is self._shape and first - self._number == place - self._place == self._count:
            self._count += count
            return
        self._cut()
        self._shape, self._number, self._place, self._count = shape, first, place, count

    def said(self, event: str, **fields: object) -> None:
        self._line(json.dumps({"event": event, **fields}, separators=(",", ":"))[1:-1])

    def _run(self, shape: _Shape, number: int, count: int) -> None:
        """A line for each of the messages `number` and on.

        The trains of a burst follow each other, so lines are made when something else comes.
        """
        if shape is self._shape and number == self._number + self._count:
            self._count += count
            return
        self._cut()
        self._shape, self._number, self._place, self._count = shape, number, 0, count

    def _cut(self) -> None:
        """Makes the lines of the run that has been open."""
        shape, number, place, count = self._shape, self._number, self._place, self._count
        self._shape, self._count = None, 0
        if shape is None:
            return
        step = self._step + 1
        self._step += count
        while count:
            take = min(count, LINES, _LOW - step % _LOW, _LOW - number % _LOW)
            lowest = min(step, number)
            if shape.between:
                take = min(take, _LOW - place % _LOW)
                lowest = min(lowest, place)
            if take <= _FEW or lowest < _LOW:
                head = self._head
                self._put(b"".join([shape.line(head, step + i, number + i, place + i) for i in range(take)]))
            else:
                self._put(shape.lines(self._head, step, number, place if shape.between else 0, take))
            step += take
            number += take
            place += take
            count -= take

    def _put(self, lines: bytes | memoryview) -> None:
        end = self._end + len(lines)
        if end > len(self._buffer):
            self._write()
            end = len(lines)
            if end > len(self._buffer):
                self._buffer.extend(bytes(end - len(self._buffer)))
        self._buffer[self._end : end] = lines
        self._end = end

    def reported(self, report: Report) -> None:
        """What happens to redundant networks, as events of this project's own."""
        if report.what.startswith("network_"):
            event = f"x-{report.what.replace('_', '-')}"
            fields = {"event": event, "reason": report.reason, **report.detail}
            self._line(json.dumps(fields, separators=(",", ":"))[1:-1])

    def end(self, event: str | None) -> None:
        """Closes the trace with an event; without one as it stands in the file, which is how a crash looks."""
        try:
            if event is not None and (self._step or self._count):
                self._told_us = _now_us()  # the flush adds nothing behind this
                self._line(f'"event":"{event}","time_us":{self._told_us}')
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        self._end, self._shape = 0, None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def flush(self) -> None:
        self._cut()
        if not self._end:
            return
        now = _now_us()
        if not 0 <= now - self._told_us < CLOCK_US:
            # For people and their plots; no event is judged by it.
            self._told_us = now
            self._line(f'"event":"x-time","time_us":{now}')
        self._write()

    def _write(self) -> None:
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            with memoryview(self._buffer) as buffer:
                at = 0
                while at < self._end:
                    at += os.write(self._fd, buffer[at : self._end])
        except OSError as error:
            raise GroupError(f"trace {self.path}: {error.strerror}") from error
        finally:
            self._end = 0


def _named(event: str, row: str) -> str:
    """What stands in a line between its step and a message's number."""
    return f',"event":"{event}","msg":' + quoted(f"{row}/")[:-1]


def _now_us() -> int:
    return time.time_ns() // 1000


def quoted(value: str) -> str:
    """A JSON string; names are printable and without spaces, so only these two need care."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
