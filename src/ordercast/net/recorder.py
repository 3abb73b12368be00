"""Writes what a member does as a trace that `ordercast check` reads.

What is written before what is part of the trace's format: the driver calls in the order of the engine's effects and
flushes before anything leaves the process or reaches the application. Lines are collected and written whole, in one
call for each turn of the driver's loop.
"""

from __future__ import annotations

import os
from pathlib import Path

from ordercast.engine.assemble import Batch
from ordercast.engine.contract import View
from ordercast.errors import GroupError

_LAST_BYTES = 4096


class Recorder:
    """The trace file of one member. A file that is there already is continued: the member came back."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.jsonl"
        self._lines: list[str] = []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise GroupError(f"trace {self.path}: {error.strerror}") from None
        self._step = self._continue()
        self._head = f'{{"node":{_text(name)},"step":'
        if self._step:
            self._line('"event":"recover"')

    def _continue(self) -> int:
        """Cuts a line off that the last life did not finish, and tells the last step."""
        size = os.fstat(self._fd).st_size
        tail = os.pread(self._fd, _LAST_BYTES, max(size - _LAST_BYTES, 0))
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

    def sent(self, name: str, view_id: str, first: int, services: list[str]) -> None:
        """Messages `first` and on got their places in `view_id`."""
        for number, service in enumerate(services, first):
            self._line(
                f'"event":"send","msg":{_text(f"{name}/{view_id}/{number}")},"conf":{_text(view_id)},"service":"{service}"'
            )

    def delivered(self, batch: Batch, sender: str, sent_in: str, view_id: str) -> None:
        """Messages of one sender, in `view_id`; their numbers are those of the view in which they were sent."""
        service = batch.service.name.lower()
        head, step, number = self._head, self._step, batch.first
        rest = f'","sender":{_text(sender)},"conf":{_text(view_id)},"service":"{service}"}}\n'
        msg = ',"event":"deliver","msg":' + _text(f"{sender}/{sent_in}/")[:-1]
        count = len(batch)
        self._lines += [f"{head}{step + i}{msg}{number + i - 1}{rest}" for i in range(1, count + 1)]
        self._step = step + count

    def close(self, event: str) -> None:
        if self._fd >= 0:
            self._line(f'"event":"{event}"')
            self.flush()
            os.close(self._fd)
            self._fd = -1

    def flush(self) -> None:
        if self._lines:
            data = memoryview("".join(self._lines).encode())
            self._lines.clear()
            while data:
                data = data[os.write(self._fd, data) :]


def _text(value: str) -> str:
    """A JSON string; names are printable and without spaces, so only these two need care."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
