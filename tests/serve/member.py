"""A member in place of a real one: a log that grows, its server, and a group in which every message is ordered at once.

What can go wrong on the way into a group is a function that a test puts in: `before` what is published is ordered, and
`after`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ordercast.serve import LogServer
from ordercast.wire.keys import GroupKey
from spark.samples import SampleLog


class Member:
    """`address` is HOST:PORT. `restart` is what a crash and a new life look like from outside."""

    def __init__(self, folder: Path, keys: Sequence[GroupKey] = (), log: SampleLog | None = None) -> None:
        self.log = log or SampleLog(folder)
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.published = 0
        self._keys = keys
        self._lock = threading.Lock()
        self.server = self._serve(0)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.server.address)

    def _serve(self, port: int) -> LogServer:
        server = LogServer(self.log.folder, ("127.0.0.1", port), lambda: self._keys, self._publish)
        server.start()
        return server

    def _publish(self, bodies, keys, headers, within_s) -> None:
        self.before()
        with self._lock:
            self.published += 1
            self.log.add(bodies, keys, headers)
        self.after()

    def restart(self) -> None:
        port = self.server.address[1]
        self.server.close()
        self.server = self._serve(port)

    def close(self) -> None:
        self.server.close()
        self.log.writer.close()
