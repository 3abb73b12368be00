"""A chat. Everyone in a room sees the same lines in the same order, and who comes and goes between the same two lines.

    python examples/chat.py kitchen ann          and in another terminal: python examples/chat.py kitchen bob

Each line that is typed is a message to the room; Ctrl-D leaves.
"""

import sys
import threading

from ordercast import GroupError, Message, View, sync


def show(group: sync.Group) -> None:
    """Prints what the group delivers until this process has left it."""
    for event in group:
        match event:
            case Message(sender=who, data=text):
                print(f"{who}: {text.decode(errors='replace')}", flush=True)
            case View(members=here, joined=joined, left=left):
                for name in left:
                    print(f"* {name} has gone", flush=True)
                for name in joined:
                    print(f"* {name} is here", flush=True)
                print(f"* in the room: {', '.join(here)}", flush=True)


def main(room: str, name: str) -> None:
    with sync.join(f"chat {room}", name=name) as group:
        screen = threading.Thread(target=show, args=(group,))
        screen.start()
        try:
            for line in sys.stdin:
                group.send(line.rstrip("\n").encode())
        except KeyboardInterrupt:
            pass  # leaving is all that is left to do
    screen.join()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: chat.py ROOM NAME")
    try:
        main(*sys.argv[1:])
    except GroupError as error:
        sys.exit(f"chat.py: {error}")
