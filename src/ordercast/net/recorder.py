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


class Recorder:
    """The trace file of one member. A file that is there already is continued: the member came back.

    A new file is made with its first lines, since one without any would be no trace.
    """

    def __init__(self, directory: Path, name: str) -> None:
        if "/" in name:
            raise GroupError(f"a member with a trace cannot have a name with a slash: {name!r}")
        self.path = directory / f"{name}.jsonl"
        self._lines: list[str] = []
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
        self._head = f'{{"node":{_text(name)},"step":'
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
        self._lines.append(f"{self._head}{self._step},{rest}}}\n")

    def conf(self, view: View) -> None:
        members = ",".join(map(_text, view.members))
        self._line(
            f'"event":"conf","conf":{_text(view.id)},"kind":"{view.kind.value}","members":[{members}],'
            f'"number":{view.number}'
        )

    def sent(self, name: str, view_id: str, first: int, count: int, service: str) -> None:
        """Messages `first` and on got their places in `view_id`."""
        head, step = self._head, self._step + 1
        msg = ',"event":"send","msg":' + _text(f"{name}/{view_id}/")[:-1]
        rest = f'","conf":{_text(view_id)},"service":"{service}"}}\n'
        self._lines += [f"{head}{step + i}{msg}{first + i}{rest}" for i in range(count)]
        self._step += count

    def delivered(self, batch: Batch, sender: str, sent_in: str, view_id: str) -> None:
        """Messages of one sender, in `view_id`; their numbers are those of the view in which they were sent."""
        service = batch.service.name.lower()
        head, step, number = self._head, self._step, batch.first
        rest = f'","sender":{_text(sender)},"conf":{_text(view_id)},"service":"{service}"}}\n'
        msg = ',"event":"deliver","msg":' + _text(f"{sender}/{sent_in}/")[:-1]
        count = len(batch)
        self._lines += [f"{head}{step + i}{msg}{number + i - 1}{rest}" for i in range(1, count + 1)]
        self._step = step + count

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
        data = memoryview("".join(self._lines).encode())
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
