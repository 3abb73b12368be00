"""What a member serves: ranges of its log, and a way in for a sink's batches. Threads, one a connection.

It reads the log's files, as any reader does, so serving costs the group nothing but the machine's time. Publishing goes
through a function that the member hands in.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import AuthError, GroupError
from ordercast.events import Headers, decode_headers
from ordercast.log import LogReader
from ordercast.serve import messages as m
from ordercast.serve.batches import MARK, Verdict, load_batches, mark
from ordercast.serve.channel import Channel, ChannelClosed, accept
from ordercast.serve.stages import BATCH_BYTES_MAX, Stages, decode_rows, too_large
from ordercast.wire.keys import GroupKey

CONNECTIONS_MAX = 256
READ_BYTES_MAX = 2**24
"""Of one answer; a chunk that is larger goes alone."""
IDLE_S = 600.0
"""A connection that asks nothing for so long is closed."""
COMMIT_TIMEOUT_S = 60.0
"""From the question to the answer: less than a client waits."""
EXPIRE_EVERY_S = 60.0
ACCEPT_AGAIN_S = 0.1

Publish = Callable[[Sequence[bytes], Sequence[bytes | None] | None, Sequence[Headers | None] | None, float], None]
"""Multicasts messages as one chunk and returns when they are in the global order for good; raises GroupError, also when
that takes longer than so many seconds."""


def parse_server(text: str) -> tuple[str, int]:
    """`HOST:PORT`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise GroupError(f"'{text}' is not of the form HOST:PORT")
    return host, int(port)


class LogServer:
    """Takes its address when it is made, and serves from `start` until it is closed: an address that is taken is known
    before anything else is done, and nobody is answered before there is something to say.
    """

    def __init__(
        self,
        data_dir: Path,
        address: tuple[str, int],
        keys: Callable[[], Iterable[GroupKey]],
        publish: Publish | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._keys = keys
        self._publish = publish
        self._reading, self._committing = threading.Lock(), threading.Lock()
        self._channels: set[Channel] = set()
        self._closed = False
        self._closing = threading.Lock()
        self._expired_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # The connections of a server that was here before, in their last minute, are no reason to refuse.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise _taken(address, error) from None
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def start(self) -> None:
        """Serves from now on. The log is there."""
        self._reader = LogReader(self._data_dir)
        self._stages = Stages(self._data_dir / "stages")
        self._batches = load_batches(self._data_dir / "batches.json")
        with self._closing:
            if self._closed:
                return  # its member has ended meanwhile
            try:
                self._socket.listen()
            except OSError as error:
                raise _taken(self.address, error) from None
            self._thread = threading.Thread(target=self._listen, name="ordercast-serve", daemon=True)
            self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None and not self._closed

    def close(self) -> None:
        """Once more is harmless, and so is another thread."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for channel in list(self._channels):
            channel.close()
        if self._thread is not None:
            self._thread.join()
            self._stages.close()

    def after_fork(self) -> None:
        """In a forked child: listener and connections stay the parent's alone."""
        self._closed = True
        self._socket.close()
        for channel in list(self._channels):
            channel.after_fork()

    def _listen(self) -> None:
        while not self._closed:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                if not self._closed:
                    time.sleep(ACCEPT_AGAIN_S)  # too many open files, say: that passes
                continue
            if len(self._channels) >= CONNECTIONS_MAX:
                sock.close()
                continue
            threading.Thread(target=self._serve, args=(sock,), name="ordercast-serve-one", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            channel = accept(sock, self._keys())
        except (GroupError, OSError):
            sock.close()
            return
        self._channels.add(channel)
        try:
            # `close` may have looked for channels before this one was there; the loop looks whether it has.
            channel.patience(IDLE_S)
            while not self._closed:
                self._answer(channel)
        except (ChannelClosed, AuthError):
            pass
        finally:
            self._channels.discard(channel)
            channel.close()

    def _answer(self, channel: Channel) -> None:
        head, body = channel.receive()
        try:
            request = m.decode_request(head)
            answer, parts = self._do(request, body)
        except msgspec.MsgspecError as error:
            answer, parts = m.Failed("GroupError", f"not a question of this protocol: {error}"), ()
        except GroupError as error:
            answer, parts = m.Failed(type(error).__name__, str(error)), ()
        except OSError as error:
            answer, parts = m.Failed("GroupError", f"the member cannot: {error.strerror or error}"), ()
        channel.send(m.encode(answer), parts)

    def _do(self, request: m.AnyRequest, body: memoryview) -> tuple[Any, Sequence[bytes | memoryview]]:
        match request:
            case m.Info():
                return self._info(), ()
            case m.Stage(stage):
                self._may_publish()
                self._expire()
                self._stages.put(stage, body)
                return None, ()
            case m.Unstage(stages):
                for stage in stages:
                    self._stages.remove(stage)
                return None, ()
            case m.Fetch(stage):
                return None, (self._stages.get(stage),)
            case m.Commit(batch, stages):
                self._may_publish()
                with self._committing:
                    return self._commit(batch, stages), ()
        with self._reading:
            return self._read(request)

    def _info(self) -> m.Log:
        with self._reading:
            reader = self._reader
            reader.refresh()
            self._batches.advance(reader)
            meta = reader.meta
            return m.Log(meta.group, meta.member, reader.earliest, reader.end, tuple(self._batches.dead))

    def _read(self, request: m.AnyRequest) -> tuple[Any, Sequence[bytes | memoryview]]:
        reader = self._reader
        match request:
            case m.Parts(start, end, target_bytes):
                return [tuple(part) for part in reader.parts(start, end, max(1, target_bytes))], ()
            case m.OffsetOfTime(time_us):
                return reader.offset_of_time(time_us), ()
            case m.Views(start, end):
                return [*reader.views(start, end)], ()
            case m.Read(start, end, limit_bytes):
                return self._chunks(start, end, min(limit_bytes, READ_BYTES_MAX))
        raise GroupError("not a question of this protocol")

    def _chunks(self, start: int, end: int, limit_bytes: int) -> tuple[int, list[bytes | memoryview]]:
        """Whole chunks, and the offset of the first message of the first one."""
        if end > self._reader.end and end > self._reader.refresh():
            raise GroupError(f"offset {end - 1} is not in the log yet, which ends at {self._reader.end}")
        first, size = start, 0
        parts: list[bytes | memoryview] = []
        for batch in self._reader.read(start, end):
            if not parts:
                first = batch.offset - batch.bounds[0]
            elif size + batch.chunk.size > limit_bytes:
                break
            parts.append(batch.chunk.raw)
            size += batch.chunk.size
        return first, parts

    # Publishing

    def _may_publish(self) -> None:
        if self._publish is None:
            raise GroupError("this member serves its log to be read alone")

    def _expire(self) -> None:
        if time.monotonic() - self._expired_s > EXPIRE_EVERY_S:
            self._expired_s = time.monotonic()
            self._stages.expire()

    def _commit(self, batch: m.Batch, stages: tuple[str, ...]) -> m.Committed:
        deadline = time.monotonic() + COMMIT_TIMEOUT_S
        verdict = self._judge(batch)
        if verdict is Verdict.FOREIGN:
            raise GroupError(
                f"txnAppId '{batch.app}' was used by another query: a new checkpoint begins to count anew, and needs a "
                "new txnAppId"
            )
        if verdict is Verdict.NEW:
            self._publish_batch(batch, stages, deadline)
            verdict = self._wait_for(batch, deadline)
        for stage in stages:
            self._stages.remove(stage)
        self._batches.save(self._data_dir / "batches.json")
        return m.Committed(verdict is Verdict.SEEN, batch.rows)

    def _judge(self, batch: m.Batch) -> Verdict:
        self._info()
        return self._batches.judge(batch)

    def _publish_batch(self, batch: m.Batch, stages: tuple[str, ...], deadline: float) -> None:
        size = sum(self._stages.size(stage) for stage in stages)
        if size > BATCH_BYTES_MAX:
            raise too_large(size)
        bodies: list[bytes] = []
        keys: list[bytes | None] = []
        encoded: list[bytes | None] = []
        for stage in stages:
            data, some_keys, some_headers = decode_rows(self._stages.get(stage))
            bodies += data
            keys += some_keys or [None] * len(data)
            encoded += some_headers or [None] * len(data)
        if len(bodies) != batch.rows:
            raise GroupError(f"{len(bodies)} rows were staged for a batch of {batch.rows}")
        headers: list[Headers | None] = [None if cell is None else decode_headers(cell) for cell in encoded]
        headers[0] = [mark(batch), *((pair for pair in headers[0] if pair[0] != MARK) if headers[0] else ())]
        assert self._publish is not None
        present = keys if any(key is not None for key in keys) else None
        self._publish(bodies, present, headers, max(0.0, deadline - time.monotonic()))

    def _wait_for(self, batch: m.Batch, deadline: float) -> Verdict:
        """Until the batch shows in the log: NEW if it was this attempt that got in, SEEN if another was first."""
        while self._judge(batch) is Verdict.NEW:
            if time.monotonic() > deadline:
                raise GroupError(
                    f"whether batch {batch.number} of '{batch.app}' was ordered cannot be told yet: try again"
                )
            time.sleep(0.002)
        last = self._batches.seen[batch.app]
        return Verdict.NEW if last.attempt == batch.attempt else Verdict.SEEN


def _taken(address: tuple[str, int], error: OSError) -> GroupError:
    host, port = address
    return GroupError(f"cannot serve the log at {host}:{port}: {error.strerror or error}")
