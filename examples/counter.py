"""A replicated counter. Each process has all of it; any of them may crash, come later, or be cut off for a while.

    python examples/counter.py votes ann         and in another terminal: python examples/counter.py votes bob

Each number that is typed is added; Ctrl-D leaves. The state is what each process has added in all, and a message
carries some of it. Totals only grow, so replicas that were apart meet by taking the larger one of each.
"""

import json
import os
import sys
import threading
from contextlib import suppress

from ordercast import GroupError, Message, NotMember, View, sync

totals: dict[str, int] = {}  # written by one thread, in the order of the group


def follow(group: sync.Group) -> None:
    """Applies what the group delivers, in the one order, and prints each new value of the counter."""
    for event in group:
        match event:
            case Message(data=data):
                before = sum(totals.values())
                for who, total in json.loads(data).items():
                    totals[who] = max(total, totals.get(who, 0))
                if sum(totals.values()) != before:
                    print(sum(totals.values()), flush=True)
            case View(members=members, joined=joined):
                print(f"# with {', '.join(members)}", file=sys.stderr, flush=True)
                if joined and totals:  # they may know less than I do
                    with suppress(NotMember):  # I am leaving
                        group.send(json.dumps(totals).encode())


def main(name: str, replica: str) -> None:
    me = f"{replica}/{os.getpid()}"  # one that comes back has forgotten its total, so it begins another one
    mine = 0
    with sync.join(f"counter {name}", name=replica) as group:
        screen = threading.Thread(target=follow, args=(group,))
        screen.start()
        try:
            for line in sys.stdin:
                mine += max(0, int(line))
                group.send(json.dumps({me: mine}).encode())
        except (KeyboardInterrupt, ValueError) as end:
            print(f"counter.py: {end or 'interrupted'}", file=sys.stderr)
    screen.join()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: counter.py COUNTER REPLICA")
    try:
        main(*sys.argv[1:])
    except GroupError as error:
        sys.exit(f"counter.py: {error}")
