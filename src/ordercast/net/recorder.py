"""Writes what a member does as a trace that `ordercast check` reads.

What is written before what is part of the trace's format: the driver calls in the order of the engine's effects and
flushes before anything leaves the process or reaches the application. Lines are collected and written whole, in one
call for each turn of the driver's loop.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from ordercast.engine.assemble import Batch
from ordercast.engine.contract import Report, View
from ordercast.errors import GroupError

_LAST_BYTES = 4096
BLOCK = 100
"""Lines of a run of messages differ in two numbers only. They are cut, for this many steps at a time, out of a block in
which the last two digits stand already, and the leading ones are put in by two replacements for all its lines."""
BLOCKS_MAX = 1024
"""Blocks that are kept, of about 13 KB each; what would need more is written line by line."""
_STEP, _NUMBER = b"\0", b"\1"
"""Where the leading digits go: signs that JSON has no place for."""


class Recorder:
    """The trace file of one member. A file that is there already is continued: the member came back.

    A new file is made with its first lines, since one without any would be no trace.
    """

    def __init__(self, directory: Path, name: str) -> None:
        if "/" in name:
            raise GroupError(f"a member with a trace cannot have a name with a slash: {name!r}")
        self.path = directory / f"{name}.jsonl"
        self._lines: list[bytes] = []
        self._blocks: dict[tuple[bytes, bytes, int], bytes] = {}
        self._fd = -1
        self._step = 0
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
        self._head = f'{{"node":{_text(name)},"step":'.encode()
        if self._step:
            self._line('"event":"recover"')

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

    def _line(self, rest: str) -> None:
        self._step += 1
        self._lines.append(b"%b%d,%b}\n" % (self._head, self._step, rest.encode()))

    def conf(self, view: View) -> None:
        self._blocks.clear()  # they are of views that are over
        members = ",".join(map(_text, view.members))
        self._line(
            f'"event":"conf","conf":{_text(view.id)},"kind":"{view.kind.value}","members":[{members}],'
            f'"number":{view.number}'
        )

    def sent(self, name: str, view_id: str, first: int, count: int, service: str) -> None:
        """Messages `first` and on got their places in `view_id`."""
        before = ',"event":"send","msg":' + _text(f"{name}/{view_id}/")[:-1]
        after = f'","conf":{_text(view_id)},"service":"{service}"}}\n'
        self._run(before.encode(), after.encode(), first, count)

    def delivered(self, batch: Batch, sender: str, sent_in: str, view_id: str) -> None:
        """Messages of one sender, in `view_id`; their numbers are those of the view in which they were sent."""
        before = ',"event":"deliver","msg":' + _text(f"{sender}/{sent_in}/")[:-1]
        service = batch.service.name.lower()
        after = f'","sender":{_text(sender)},"conf":{_text(view_id)},"service":"{service}"}}\n'
        self._run(before.encode(), after.encode(), batch.first, len(batch))

    def _run(self, before: bytes, after: bytes, number: int, count: int) -> None:
        """A line for each of the messages `number` and on, which stands between `before` and `after`."""
        step = self._step + 1
        self._step += count
        lines = self._lines
        while count:
            at, low = step % BLOCK, number % BLOCK
            take = min(count, BLOCK - at, BLOCK - low)
            block = None if step < BLOCK or number < BLOCK else self._block(before, after, (low - at) % BLOCK)
            if block is None:
                head = self._head
                lines += [b"%b%d%b%d%b" % (head, step + i, before, number + i, after) for i in range(take)]
            else:
                size = len(block) // BLOCK
                part = block[at * size : (at + take) * size]
                lines.append(part.replace(_STEP, b"%d" % (step // BLOCK)).replace(_NUMBER, b"%d" % (number // BLOCK)))
            step += take
            number += take
            count -= take

    def _block(self, before: bytes, after: bytes, shift: int) -> bytes | None:
        """The lines of BLOCK steps in which a number is `shift` ahead of the step, as far as two digits tell."""
        key = before, after, shift
        block = self._blocks.get(key)
        if block is None and len(self._blocks) < BLOCKS_MAX:
            parts = (self._head, _STEP, b"%02d", before, _NUMBER, b"%02d", after)
            line = b"".join(part if part == b"%02d" else part.replace(b"%", b"%%") for part in parts)
            block = b"".join([line % (i, (i + shift) % BLOCK) for i in range(BLOCK)])
            self._blocks[key] = block
        return block

    def reported(self, report: Report) -> None:
        """What happens to redundant networks, as events of this project's own."""
        if report.what.startswith("network_"):
            event = f"x-{report.what.replace('_', '-')}"
            fields = {"event": event, "reason": report.reason, **report.detail}
            self._line(json.dumps(fields, separators=(",", ":"))[1:-1])

    def end(self, event: str | None) -> None:
        """Closes the trace with an event; without one as it stands in the file, which is how a crash looks."""
        try:
            if event is not None and (self._step or self._lines):
                self._line(f'"event":"{event}"')
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        self._lines.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def flush(self) -> None:
        if not self._lines:
            return
        data = memoryview(b"".join(self._lines))
        self._lines.clear()
        try:
            if self._fd < 0:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise GroupError(f"trace {self.path}: {error.strerror}") from error


def _text(value: str) -> str:
    """A JSON string; names are printable and without spaces, so only these two need care."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
