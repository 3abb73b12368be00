"""Members of a durable group in this process, on loopback."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ordercast import sync
from ordercast.errors import GroupError
from ordercast.events import Message, View

DEADLINE_S = 60.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, f"in vain: {what}"
        time.sleep(0.02)


class Party:
    """A durable group whose members come and go; `close` ends all of them as a crash would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group = f"durable {uuid.uuid4().hex[:12]}"
        self.members: dict[str, sync.Group] = {}

    def join(self, *names: str, **options: Any) -> list[sync.Group]:
        """All at once; each waits for as many as there are then."""
        options = {"founders": len(names), "min_members": len(names) + len(self.members), **options}

        def enter(name: str) -> sync.Group:
            return sync.join(self.group, name=name, engine="corel", data_dir=self.directory / name, **options)

        with ThreadPoolExecutor(len(names)) as pool:
            joined = [*pool.map(enter, names)]
        self.members.update(zip(names, joined, strict=True))
        return joined

    def stop(self, *names: str) -> None:
        """As a crash of the process, as far as the others can tell."""
        for name in names:
            group = self.members.pop(name)
            member = group._member
            member.leaving = member.error_shown = True
            member.abandon()
            member.driver.join(DEADLINE_S)

    def wait_for_primary(self) -> None:
        everyone = sorted(self.members)
        wait_until(
            lambda: all(
                member.view.primary and sorted(member.view.members) == everyone for member in self.members.values()
            ),
            "one primary component",
        )

    def close(self) -> None:
        with suppress(GroupError):
            self.stop(*self.members)


def take(member: sync.Group, count: int) -> list[Message]:
    """The next messages of its stream."""
    found: list[Message] = []
    for event in member:
        if isinstance(event, Message):
            found.append(event)
            if len(found) == count:
                break
    return found


def views(member: sync.Group, until: Callable[[View], bool]) -> list[View]:
    """Views of the stream up to one that fits."""
    found: list[View] = []
    for event in member:
        if isinstance(event, View):
            found.append(event)
            if until(event):
                break
    return found


def places(messages: Sequence[Message]) -> list[tuple[int | None, bytes]]:
    return [(message.offset, message.data) for message in messages]
