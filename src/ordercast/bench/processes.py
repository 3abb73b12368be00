"""Node processes of one run: started at their places, let go at one moment, heard, and ended."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Any, Self, cast

from ordercast.bench.hosts import Place

READY_S = 30.0
"""How long the nodes of a run may take to find one another."""
AFTER_S = 30.0
"""How long after the end of a run its figures may come."""
LEAD_S = 0.2
"""From the word to begin until the beginning."""


class RunFailed(Exception):
    """A run gave no figures; the text says why."""


class Processes:
    """One process a place. Each says that it is ready, begins at the time it is told, and gives its figures."""

    def __init__(self, places: Sequence[Place], commands: Sequence[Sequence[str]], what: str) -> None:
        self.what = what
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 – closed by `end`
        self._processes: list[subprocess.Popen[str]] = []
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        try:
            for place, command in zip(places, commands, strict=True):
                self._processes.append(
                    place.popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=self._errors,
                        env=environment,
                    )
                )
        except BaseException:
            self.end()
            raise

    def ready(self) -> None:
        self._gather(READY_S)

    def go(self) -> int:
        """Tells all nodes one time to begin, and gives it."""
        begin_ns = time.monotonic_ns() + int(LEAD_S * 1e9)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{begin_ns}\n")
            process.stdin.flush()
        return begin_ns

    def figures(self, seconds: float, tick: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
        """What the nodes say after a run of so many seconds; `tick` is called a few times a second meanwhile."""
        return self._gather(seconds + AFTER_S, tick)

    def _gather(self, within_s: float, tick: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
        """One line of each process."""
        until = time.monotonic() + within_s
        lines: dict[int, dict[str, Any]] = {}
        waiting = {cast(IO[str], process.stdout): number for number, process in enumerate(self._processes)}
        while waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise RunFailed(f"{self.what}: {len(waiting)} of {len(self._processes)} nodes gave no answer in time")
            readable, _, _ = select.select(list(waiting), [], [], min(left, 0.25))
            tick()
            for stream in readable:
                number = waiting.pop(stream)
                line = stream.readline()
                if not line:
                    raise RunFailed(f"{self.what}: node {number + 1} has ended: {self._last_error()}")
                lines[number] = cast(dict[str, Any], json.loads(line))
        return [lines[number] for number in range(len(self._processes))]

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return lines[-1] if lines else "it has said nothing"

    def end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def python(module: str, argument: object) -> list[str]:
    """The command of a module of this package, given one argument as JSON."""
    return [sys.executable, "-m", module, json.dumps(argument)]
