"""Processes of a test: their output as it comes, conditions with a deadline, and an end whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ORDERCAST = (sys.executable, "-m", "ordercast")
PATIENT = (sys.executable, str(ROOT / "tests/cli/patient.py"))
DEADLINE_S = 60.0
"""For whatever is waited for; only a test that fails needs it."""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", "COLUMNS": "120", **more}


def unique(what: str) -> str:
    """A group that no other test, and no other run of the tests, meets."""
    return f"test {what} {uuid.uuid4().hex[:12]}"


def ordercast(*arguments: str | Path, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end."""
    return subprocess.run(
        [*ORDERCAST, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=environment(**env),
        timeout=DEADLINE_S,
        check=False,
    )


def shell(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash in which `ordercast` is the command."""
    command = f'ordercast() {{ "{sys.executable}" -m ordercast "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment(**env), timeout=DEADLINE_S, check=False
    )


def error_line(result: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on stderr of a command that was refused."""
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, result.stderr.decode()
    assert result.stdout == b""
    assert result.returncode == 2
    return lines[0]


class Process:
    """A process whose output lines are collected as they come."""

    def __init__(self, *command: str | Path, **env: str) -> None:
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**env),
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._collect, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._collect, args=(self.process.stderr, self.errors)),
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, stream: Any, lines: list[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    lines.append(line.decode().rstrip("\n"))
                    self._changed.notify_all()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "message"]

    @property
    def views(self) -> list[list[str]]:
        """The members of the regular views."""
        return [event["members"] for event in self.events if event.get("kind") == "regular"]

    def wait_for(self, condition: Callable[[], bool], what: str = "") -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S), f"in vain: {what}; {self.errors} {self.lines[-5:]}"

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit status, once all its output is here."""
        status = self.process.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        return status

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        self.wait()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """For what nobody announces."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.05)
