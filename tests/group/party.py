"""Members of one group for one test, their threads and processes, and the check of what they recorded."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ordercast
from ordercast import Message, View, sync
from ordercast.check import check_trace

DEADLINE_S = 40.0
"""For whatever is waited for; only a test that fails needs it."""
TOKEN_LOSS_US = 5_000_000
"""The token-loss timeout where no view may change: a process may wait long for its turn on a busy machine."""
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def within() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await coroutine

    return asyncio.run(within())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.005)


def threads_of(name: str) -> list[threading.Thread]:
    """The drivers of the members of a group in this process."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"ordercast {name} ")]


class Party:
    """A group that no other test meets."""

    def __init__(self, directory: Path) -> None:
        self.group = f"test-{uuid.uuid4().hex}"
        self.directory = directory
        self.processes: list[subprocess.Popen[str]] = []

    def options(self, name: str, **options: Any) -> dict[str, Any]:
        return {"name": name, "data_dir": self.directory / name, "trace": True} | options

    def join(self, name: str, **options: Any) -> ordercast.Group:
        return ordercast.join(self.group, **self.options(name, **options))

    def join_sync(self, name: str, **options: Any) -> sync.Group:
        return sync.join(self.group, **self.options(name, **options))

    def start(self, role: str, name: str, *arguments: object) -> Process:
        """Another process, which runs a function of tests/group/roles.py."""
        return Process(self, role, name, [str(argument) for argument in arguments])

    def threads(self) -> list[threading.Thread]:
        return threads_of(self.group)

    def check(self) -> None:
        """Every trace of every test is one that the checker passes."""
        traces = sorted(self.directory.glob("*/trace/*.jsonl"))
        if not traces:
            return
        together = self.directory / "together"
        together.mkdir()
        for path in traces:
            shutil.copy(path, together)
        verdict = check_trace(together)
        assert verdict.ok, verdict.violations

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        wait_until(lambda: not self.threads(), "the end of the drivers")


class Process:
    """A member in a process of its own, which says what happens in lines of JSON."""

    def __init__(self, party: Party, role: str, name: str, arguments: Sequence[str]) -> None:
        root = Path(__file__).resolve().parents[2]
        self.popen = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.group.roles",
                role,
                party.group,
                name,
                str(party.directory / name),
                *arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"},
        )
        party.processes.append(self.popen)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def hear(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, f"the process has ended with status {self.popen.wait()}"
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()


async def messages(group: ordercast.Group, count: int) -> list[Message]:
    """The next messages of the stream, views between them left out."""
    got: list[Message] = []
    if count:
        async for event in group:
            if isinstance(event, Message):
                got.append(event)
                if len(got) == count:
                    break
    return got


async def view_of(group: ordercast.Group, members: Sequence[str]) -> View:
    """Reads on to a view of exactly these members."""
    async for event in group:
        if isinstance(event, View) and event.members == tuple(members):
            return event
    raise AssertionError(f"the stream ended before a view of {members}")
