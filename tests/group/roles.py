"""What other processes do in these tests: `python -m tests.group.roles ROLE GROUP NAME DATA_DIR [ARGUMENT...]`."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from ordercast import GroupError, Message, View, sync


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def open_group(group: str, name: str, data_dir: str, members: int) -> sync.Group:
    return sync.join(group, name=name, data_dir=Path(data_dir), trace=True, min_members=members)


def talk(group: str, name: str, data_dir: str, members: str, size: str) -> None:
    """Sends without an end, reads everything, and is killed."""
    with open_group(group, name, data_dir, int(members)) as member:
        say(joined=True)
        while True:
            member.send(bytes(int(size))).wait()


def listen(group: str, name: str, data_dir: str, members: str) -> None:
    """Tells of every view and of every message's length."""
    with open_group(group, name, data_dir, int(members)) as member:
        for event in member:
            if isinstance(event, View):
                say(view=event.members)
            elif isinstance(event, Message):
                say(length=len(event.data), sender=event.sender)
                if event.data == b"leave":
                    member.leave()
    say(left=True)


def large(group: str, name: str, data_dir: str, size: str) -> None:
    """Takes part in the exchange of two large messages and tells how much memory that took, in MB."""
    with open_group(group, name, data_dir, 2) as member:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ticket = member.send(name.encode() * (int(size) // len(name)))
        digests: dict[str, bool] = {}
        for event in member:
            if isinstance(event, Message):
                digests[event.sender] = event.data == event.sender.encode() * (int(size) // len(event.sender))
                if len(digests) == 2:
                    break
        ticket.wait()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        say(intact=digests, grown_mb=grown / 1024)


def claim(group: str, name: str, data_dir: str) -> None:
    """Tries to join with a name and tells how that went."""
    begun = time.monotonic()
    try:
        member = sync.join(group, name=name, discovery_s=1.0)
    except GroupError as error:
        say(error=str(error), kind=type(error).__name__, seconds=time.monotonic() - begun)
    else:
        say(view=member.view.members)
        sys.stdin.readline()  # the name is taken until the test is over
        member.leave()


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    globals()[role](*rest)
