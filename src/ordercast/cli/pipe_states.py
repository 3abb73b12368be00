"""`ordercast pipe --states`: how far the own lines have come, as JSON lines among the events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from queue import SimpleQueue

from ordercast import sync
from ordercast.errors import GroupError
from ordercast.pledge import STATES, MessageState

_Tickets = SimpleQueue[tuple[sync.SyncTicket, int] | None]


class States:
    """Tells how far the own lines have come: a thread for each state, which follows the tickets in their order."""

    def __init__(self, emit: Callable[[bytes], None]) -> None:
        self._emit = emit
        self._queues: dict[MessageState, _Tickets] = {state: SimpleQueue() for state in STATES[1:]}
        self._threads = [threading.Thread(target=self._tell, args=each, daemon=True) for each in self._queues.items()]
        for thread in self._threads:
            thread.start()

    def follow(self, ticket: sync.SyncTicket, lines: int) -> None:
        for tickets in self._queues.values():
            tickets.put((ticket, lines))

    def finish(self, within_s: float) -> None:
        """At the end of the group, when the fate of all is known."""
        for tickets in self._queues.values():
            tickets.put(None)
        for thread in self._threads:
            thread.join(within_s)

    def _tell(self, state: MessageState, tickets: _Tickets) -> None:
        first = 1
        while (each := tickets.get()) is not None:
            ticket, lines = each
            try:
                ticket.reached(state)
            except GroupError:
                return  # it never will: what ended the group is told elsewhere
            last = first + lines - 1
            fields = {"event": "state", "state": state, "first": first, "last": last}
            self._emit(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
            first = last + 1
